//! The encoding of one step, as a record keeps several of them one after the other.

use bytes::{Buf, Bytes};

/// Precedes each step, so that a later release can encode steps in another way.
const VERSION: u8 = 1;

/// Encodes a step; `None` if its name has more than 255 bytes, or its result more than 4 GiB.
pub(super) fn encode(name: &str, result: &[u8]) -> Option<Vec<u8>> {
    let name_length = u8::try_from(name.len()).ok()?;
    let length = u32::try_from(result.len()).ok()?;
    let mut step = Vec::with_capacity(name.len() + result.len() + 6);
    step.extend([VERSION, name_length]);
    step.extend_from_slice(name.as_bytes());
    step.extend_from_slice(&length.to_be_bytes());
    step.extend_from_slice(result);
    Some(step)
}

/// Takes a step from the front of several, and decodes it to its name and its result.
pub(super) fn take(rest: &mut Bytes) -> Option<(String, Bytes)> {
    if rest.try_get_u8().ok()? != VERSION {
        return None;
    }
    let length = rest.try_get_u8().ok()?.into();
    let name = split_to(rest, length)?;
    let length = usize::try_from(rest.try_get_u32().ok()?).ok()?;
    let result = split_to(rest, length)?;
    Some((String::from_utf8(name.into()).ok()?, result))
}

fn split_to(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}
