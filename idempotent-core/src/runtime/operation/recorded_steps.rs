//! The steps that earlier attempts have done, and their encoding.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use super::NoteError;
use crate::{recording::EncodedRecording, runtime::step_encoding};

/// Precedes an input, so that a later release can encode inputs in another way.
const VERSION: u8 = 1;
/// Precedes an input with the digest of a namespace.
const NAMESPACED: u8 = 2;
/// The length of that digest.
const NAMESPACE: usize = 8;
/// The maximum length of one result.
const MAX_RESULT: usize = 64 << 10;
/// The maximum length of all steps.
const MAX_STEPS: usize = 256 << 10;
/// The maximum length of the input.
const MAX_INPUT: usize = 256 << 10;

/// The recorded steps of an operation, in order.
#[derive(Debug, Default)]
pub(super) struct RecordedSteps {
    steps: Vec<RecordedStep>,
    /// The length of all steps, as the record keeps them.
    length: usize,
}

#[derive(Debug)]
struct RecordedStep {
    name: String,
    result: Bytes,
    /// Whether this attempt has asked for the step.
    asked_for: bool,
}

impl RecordedSteps {
    /// Decodes the steps of a record. A step that was recorded twice, because the first
    /// acknowledgment was lost, counts once.
    pub(super) fn decode(encoded: &Bytes) -> Result<Self, NoteError> {
        let mut rest = encoded.clone();
        let mut steps = Vec::<RecordedStep>::new();
        while !rest.is_empty() {
            if is_sealed(&rest) {
                return Err(NoteError::Sealed);
            }
            let (name, result) =
                step_encoding::take(&mut rest).ok_or(NoteError::Unreadable { source: None })?;
            if steps.iter().all(|step| step.name != name) {
                steps.push(RecordedStep { name, result, asked_for: false });
            }
        }
        Ok(Self { steps, length: encoded.len() })
    }

    /// Returns the result of a step, or `None` if the step has to run. The steps that have no
    /// recorded result come after all those that have one.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, NoteError> {
        if let Some(step) = self.steps.iter_mut().find(|step| step.name == name) {
            if step.asked_for {
                return Err(NoteError::StepName { step: name.to_owned() });
            }
            let result = serde_json::from_slice(&step.result)
                .map_err(|source| NoteError::Unreadable { source: Some(source) })?;
            step.asked_for = true;
            return Ok(Some(result));
        }
        match self.steps.iter().find(|step| !step.asked_for) {
            Some(RecordedStep { name: recorded, .. }) => {
                Err(NoteError::UnknownStep { step: name.to_owned(), recorded: recorded.clone() })
            }
            None => Ok(None),
        }
    }

    /// Encodes the result of a step that is done, and counts it as recorded. Returns the result as
    /// later attempts read it, too.
    pub(super) fn add<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        result: &T,
    ) -> Result<(Bytes, T), NoteError> {
        let what = "the result of a step";
        let unserializable = |source| NoteError::Serialize { what, source };
        let result = serde_json::to_vec(result).map_err(unserializable)?;
        let read = serde_json::from_slice(&result).map_err(unserializable)?;
        limited(what, result.len(), MAX_RESULT)?;
        let step = step_encoding::encode(name, &result)
            .ok_or_else(|| NoteError::StepName { step: name.to_owned() })?;
        limited("the results of all steps", self.length + step.len(), MAX_STEPS)?;
        self.length += step.len();
        let (name, result) = (name.to_owned(), Bytes::new());
        self.steps.push(RecordedStep { name, result, asked_for: true });
        Ok((step.into(), read))
    }
}

/// Whether bytes are still sealed, because the runtime has no keyring, or one that does not open
/// them.
fn is_sealed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&EncodedRecording::SEALED)
}

fn limited(what: &'static str, length: usize, max: usize) -> Result<(), NoteError> {
    if length > max { Err(NoteError::TooLarge { what, length, max }) } else { Ok(()) }
}

/// Encodes the input of an operation, whose record has this namespace.
pub(super) fn encode_input<T: Serialize + ?Sized>(
    namespace: Option<&str>,
    input: &T,
) -> Result<Bytes, NoteError> {
    let what = "the input";
    let encoded =
        serde_json::to_vec(input).map_err(|source| NoteError::Serialize { what, source })?;
    limited(what, encoded.len() + 1 + NAMESPACE, MAX_INPUT)?;
    Ok(match namespace {
        None => [&[VERSION][..], &encoded].concat().into(),
        Some(namespace) => [&[NAMESPACED][..], &digest(namespace), &encoded].concat().into(),
    })
}

/// Returns whether an input was set [in this namespace](super::Run::set_input_in), or without any.
/// Applications with different namespaces may share a store and the names of their operations.
#[must_use]
pub fn is_input_of(input: &[u8], namespace: &str) -> bool {
    match input {
        [NAMESPACED, rest @ ..] => rest.starts_with(&digest(namespace)),
        _ => true,
    }
}

fn digest(namespace: &str) -> [u8; NAMESPACE] {
    let mut digest = [0; NAMESPACE];
    let hash = Sha256::new_with_prefix("idem/namespace/1").chain_update(namespace).finalize();
    digest.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    digest
}

/// Decodes the input that an attempt has [set](super::Run::set_input), from the
/// [notes](crate::Notes) of its record.
///
/// # Errors
/// Fails if the input is not of this type, was written by a later release, or is sealed with a key
/// that the runtime does not have.
pub fn decode_input<T: DeserializeOwned>(input: &[u8]) -> Result<T, NoteError> {
    if is_sealed(input) {
        return Err(NoteError::Sealed);
    }
    let input = match input {
        [VERSION, input @ ..] => Some(input),
        [NAMESPACED, rest @ ..] => rest.get(NAMESPACE..),
        _ => None,
    };
    let input = input.ok_or(NoteError::Unreadable { source: None })?;
    serde_json::from_slice(input).map_err(|source| NoteError::Unreadable { source: Some(source) })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn recorded(steps: &[(&str, u32)]) -> RecordedSteps {
        let mut before = RecordedSteps::default();
        let encoded: Vec<_> =
            steps.iter().flat_map(|(name, result)| before.add(name, result).unwrap().0).collect();
        RecordedSteps::decode(&encoded.into()).unwrap()
    }

    #[test]
    fn the_encoding_of_a_step_is_fixed_for_ever() {
        let encoded = RecordedSteps::default().add("charge", &7).unwrap().0;
        assert_eq!(encoded, &b"\x01\x06charge\0\0\0\x017"[..]);
    }

    #[test]
    fn steps_come_back_in_order_and_once() {
        let mut steps = recorded(&[("charge", 1), ("ledger", 2), ("charge", 3)]);
        assert_eq!(steps.take::<u32>("charge").unwrap(), Some(1));
        assert!(matches!(steps.take::<u32>("charge"), Err(NoteError::StepName { .. })));
        assert_eq!(steps.take::<u32>("ledger").unwrap(), Some(2));
        assert_eq!(steps.take::<u32>("receipt").unwrap(), None);
        steps.add("receipt", &4).unwrap();
        assert!(matches!(steps.take::<u32>("receipt"), Err(NoteError::StepName { .. })));
    }

    #[test]
    fn a_step_that_was_not_recorded_does_not_run_before_those_that_were() {
        let mut steps = recorded(&[("charge", 1)]);
        let error = steps.take::<u32>("capture").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the step `capture` was not recorded, but `charge` was and has not been asked for; \
             keep the names and the order of steps while operations are in flight"
        );
        assert!(matches!(
            recorded(&[("charge", 1)]).take::<String>("charge"),
            Err(NoteError::Unreadable { source: Some(_) })
        ));
    }

    #[test]
    fn results_are_limited() {
        let mut steps = RecordedSteps::default();
        let large = "a".repeat(MAX_RESULT);
        assert!(matches!(steps.add("one", &large), Err(NoteError::TooLarge { .. })));
        for step in ["one", "two", "three"] {
            steps.add(step, &large[2..].to_owned()).unwrap();
        }
        let error = steps.add("four", &large[2..].to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("the results of all steps is too large"), "{error}");
        assert!(encode_input(None, &"a".repeat(MAX_INPUT)).is_err());
    }

    #[test]
    fn an_input_belongs_to_its_namespace() {
        let [shop, without] = [Some("shop"), None].map(|name| encode_input(name, &7).unwrap());
        assert_eq!(without, &b"\x017"[..]);
        assert_eq!((shop.len(), shop.first(), shop.last()), (10, Some(&2), Some(&b'7')));
        for input in [&shop, &without] {
            assert_eq!(decode_input::<u32>(input).unwrap(), 7);
            assert!(is_input_of(input, "shop"));
        }
        assert!(!is_input_of(&shop, "bank") && is_input_of(&without, "bank"));
        assert!(!is_input_of(&shop[..5], "shop"));
        assert!(decode_input::<u32>(&shop[..5]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..100)) {
            let _ = RecordedSteps::decode(&bytes.clone().into());
            let _ = decode_input::<String>(&bytes);
        }
    }
}
