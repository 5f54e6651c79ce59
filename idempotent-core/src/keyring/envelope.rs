//! The format of a sealed value.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | [`VERSION`] |
//! | 2 | the status of a recorded response, big-endian; 0 if there is none |
//! | 4 | the id of the key, big-endian |
//! | 4 | the length of everything that follows, big-endian |
//! | 24 | the nonce |
//! | any | the ciphertext, as long as the value |
//! | 16 | the tag |
//!
//! The associated data is `idem/sealed/1`, the [`Field`], the record id, and the first 11 bytes.

use bytes::Bytes;
use chacha20poly1305::{AeadInOut, Tag, XChaCha20Poly1305, XNonce};

use crate::{record_id::RecordId, recording::EncodedRecording};

/// The first byte of a sealed value, which differs from that of every other encoding.
pub(super) const VERSION: u8 = EncodedRecording::SEALED;
const HEADER: usize = 11;
const NONCE: usize = 24;
const TAG: usize = 16;

/// Which part of a record a value is. The numbers are part of what is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Recording = 1,
    Step = 2,
    Input = 3,
}

/// The reason why a value could not be sealed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("the operating system has returned no random nonce")]
    Nonce(#[from] getrandom::Error),
    #[error("a value of {length} bytes is too long to be sealed")]
    TooLong { length: usize },
}

/// The reason why a value could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("it is not sealed, and the keyring refuses such values")]
    Unsealed,
    #[error("it was cut, or its length was changed")]
    Cut,
    #[error("the keyring has no key with the id {key_id}, which has sealed it")]
    UnknownKey { key_id: u32 },
    #[error(
        "it was changed or moved from another record or field, or the key with the id {key_id} is \
         not the one that has sealed it"
    )]
    Refused { key_id: u32 },
}

pub(super) fn seal(
    key_id: u32,
    cipher: &XChaCha20Poly1305,
    id: &RecordId,
    field: Field,
    plain: &[u8],
) -> Result<Bytes, SealError> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)?;
    seal_with(nonce, key_id, cipher, id, field, plain)
}

pub(super) fn seal_with(
    nonce: [u8; NONCE],
    key_id: u32,
    cipher: &XChaCha20Poly1305,
    id: &RecordId,
    field: Field,
    plain: &[u8],
) -> Result<Bytes, SealError> {
    let too_long = || SealError::TooLong { length: plain.len() };
    let status = match field {
        Field::Recording => EncodedRecording::status_of(plain).unwrap_or_default(),
        Field::Step | Field::Input => 0,
    };
    let length = NONCE.saturating_add(plain.len()).saturating_add(TAG);
    let length = u32::try_from(length).map_err(|_| too_long())?;
    let mut out = Vec::with_capacity(HEADER + NONCE + plain.len() + TAG);
    out.push(VERSION);
    out.extend_from_slice(&status.to_be_bytes());
    out.extend_from_slice(&key_id.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    let associated = associated_data(field, id, &out);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(plain);
    let text = out.get_mut(HEADER + NONCE..).unwrap_or_default();
    let tag = cipher
        .encrypt_inout_detached(&XNonce::from(nonce), &associated, text.into())
        .map_err(|_| too_long())?;
    out.extend_from_slice(&tag);
    Ok(out.into())
}

pub(super) fn open(
    key_id: u32,
    cipher: &XChaCha20Poly1305,
    id: &RecordId,
    field: Field,
    sealed: &[u8],
) -> Result<Bytes, OpenError> {
    if length(sealed) != Some(sealed.len()) {
        return Err(OpenError::Cut);
    }
    let (header, rest) = sealed.split_first_chunk::<HEADER>().ok_or(OpenError::Cut)?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(OpenError::Cut)?;
    let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(OpenError::Cut)?;
    let associated = associated_data(field, id, header);
    let (nonce, tag, mut text) = (XNonce::from(*nonce), Tag::from(*tag), text.to_vec());
    cipher
        .decrypt_inout_detached(&nonce, &associated, text.as_mut_slice().into(), &tag)
        .map_err(|_| OpenError::Refused { key_id })?;
    Ok(text.into())
}

/// The id of the key that has sealed a value.
pub(super) fn key_id(sealed: &[u8]) -> Option<u32> {
    let (header, _) = sealed.split_first_chunk::<HEADER>()?;
    let [_, _, _, key_id @ .., _, _, _, _] = *header;
    Some(u32::from_be_bytes(key_id))
}

/// The length of a sealed value, as its header has it.
pub(super) fn length(sealed: &[u8]) -> Option<usize> {
    let (header, _) = sealed.split_first_chunk::<HEADER>()?;
    let [version, .., a, b, c, d] = *header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    (version == VERSION).then(|| length.saturating_add(HEADER))
}

fn associated_data(field: Field, id: &RecordId, header: &[u8]) -> Vec<u8> {
    [&b"idem/sealed/1"[..], &[field as u8], id.as_bytes(), header].concat()
}
