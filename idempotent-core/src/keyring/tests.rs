use proptest::{collection::vec, prelude::*};

use super::*;
use crate::recording::EncodedRecording;

const FIELDS: [Field; 3] = [Field::Recording, Field::Step, Field::Input];

fn id(byte: u8) -> RecordId {
    RecordId::from_bytes([byte; 32])
}

fn key(byte: u8) -> [u8; 32] {
    [byte; 32]
}

fn keyring() -> Keyring {
    Keyring::none().with(7, &key(7)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The values are those of libsodium's `crypto_aead_xchacha20poly1305_ietf_encrypt`.
#[test]
fn the_format_is_fixed_for_ever() {
    let key: Vec<u8> = (0..32).collect();
    let cipher = XChaCha20Poly1305::new_from_slice(&key).unwrap();
    let nonce = std::array::from_fn(|at| 64 + u8::try_from(at).unwrap());
    let nonce_in_hex = "404142434445464748494a4b4c4d4e4f5051525354555657";
    let vectors: [(Field, &[u8], &str, &str); 3] = [
        (
            Field::Recording,
            b"\x01\x00\xc9\x01\x00\x02ok",
            "8100c90000000700000030",
            "d539cc71d0e2167df9bfb34ed001301d4d2f2bd202d79c68",
        ),
        (
            Field::Step,
            b"\x01\x06charge\0\0\0\x017",
            "8100000000000700000035",
            "d53f6618b1921e738ff487bf980d98a5fea3f47d4818cc1a2c4d6ad299",
        ),
        (Field::Input, b"\x017", "810000000000070000002a", "d50ec8a2c88ce36a3fbacdf8f1825e1af659"),
    ];
    let keyring = Keyring::none().opening(7, &key).unwrap();
    for (field, plain, header, text) in vectors {
        let sealed = envelope::seal_with(nonce, 7, &cipher, &id(0xab), field, plain).unwrap();
        assert_eq!(hex(&sealed), format!("{header}{nonce_in_hex}{text}"), "{field:?}");
        assert_eq!(keyring.open(&id(0xab), field, &sealed).unwrap(), plain);
    }
}

#[test]
fn a_value_is_bound_to_its_record_and_its_field() {
    let plain = Bytes::from_static(b"\x01\x00\xc9 a response");
    for field in FIELDS {
        let sealed = keyring().seal(&id(1), field, &plain).unwrap();
        assert_eq!(keyring().open(&id(1), field, &sealed), Ok(plain.clone()));
        let refused = Err(OpenError::Refused { key_id: 7 });
        assert_eq!(keyring().open(&id(2), field, &sealed), refused, "{field:?}");
        for other in FIELDS.into_iter().filter(|other| *other != field) {
            assert_eq!(keyring().open(&id(1), other, &sealed), refused, "{field:?} as {other:?}");
        }
    }
}

#[test]
fn the_first_key_seals_and_every_key_opens() {
    let plain = Bytes::from_static(b"\x017");
    let old = keyring().seal(&id(1), Field::Input, &plain).unwrap();
    let rotated = Keyring::none().with(8, &key(8)).unwrap().with(7, &key(7)).unwrap();
    assert_eq!(rotated.open(&id(1), Field::Input, &old), Ok(plain.clone()));
    assert!(!rotated.is_current(&old) && keyring().is_current(&old));
    let new = rotated.seal(&id(1), Field::Input, &plain).unwrap();
    assert!(rotated.is_current(&new));
    let unknown = OpenError::UnknownKey { key_id: 8 };
    assert_eq!(keyring().open(&id(1), Field::Input, &new), Err(unknown));
    let wrong = Keyring::none().with(8, &key(9)).unwrap();
    let refused = OpenError::Refused { key_id: 8 };
    assert_eq!(wrong.open(&id(1), Field::Input, &new), Err(refused));
}

#[test]
fn a_key_that_only_opens_seals_nothing() {
    let plain = Bytes::from_static(b"\x017");
    let opening = Keyring::none().opening(7, &key(7)).unwrap();
    assert!(!opening.seals() && !opening.is_none());
    assert_eq!(opening.seal(&id(1), Field::Input, &plain).unwrap(), plain);
    let sealed = keyring().seal(&id(1), Field::Input, &plain).unwrap();
    assert_eq!(opening.open(&id(1), Field::Input, &sealed), Ok(plain));
}

#[test]
fn what_is_not_sealed_is_read_unless_it_is_refused() {
    let plain = Bytes::from_static(b"\x017");
    assert_eq!(keyring().open(&id(1), Field::Input, &plain), Ok(plain.clone()));
    let strict = keyring().refusing_unsealed();
    assert_eq!(strict.open(&id(1), Field::Input, &plain), Err(OpenError::Unsealed));
}

#[test]
fn a_status_stays_readable_and_cannot_be_changed() {
    let recording = EncodedRecording::with_checksum(vec![1, 0, 201, 0]);
    let sealed = keyring().seal(&id(1), Field::Recording, recording.as_bytes()).unwrap();
    assert_eq!(EncodedRecording::status_of(&sealed), Some(201));
    let mut changed = sealed.to_vec();
    changed[2] = 202;
    let refused = OpenError::Refused { key_id: 7 };
    assert_eq!(keyring().open(&id(1), Field::Recording, &changed.into()), Err(refused));
}

#[test]
fn sealed_values_are_taken_from_the_front_of_others() {
    let sealed = ["a", "bc"].map(|plain| {
        keyring().seal(&id(1), Field::Step, &Bytes::copy_from_slice(plain.as_bytes())).unwrap()
    });
    let mut rest = Bytes::from(sealed.concat());
    assert_eq!(sealed.clone().map(|_| take_sealed(&mut rest).unwrap()), sealed);
    assert_eq!((rest.len(), take_sealed(&mut rest)), (0, None));
}

#[test]
fn keys_have_32_bytes_and_ids_of_their_own() {
    for length in [0, 16, 31, 33, 64] {
        let error = Keyring::none().with(3, &vec![1; length]).unwrap_err();
        assert_eq!(error, KeyringError::Length { id: 3, length });
        let expected = format!("the key 3 of the keyring has {length} bytes; it needs exactly 32");
        assert_eq!(error.to_string(), expected);
    }
    let error = keyring().opening(7, &key(1)).unwrap_err();
    assert_eq!(error.to_string(), "the keyring has two keys with the id 7");
}

#[test]
fn debug_shows_only_ids() {
    assert_eq!(format!("{:?}", keyring().with(9, &key(9)).unwrap()), "[7, 9]");
}

proptest! {
    #[test]
    fn a_changed_or_cut_value_is_refused(
        plain in vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let plain = Bytes::from(plain);
        let strict = keyring().refusing_unsealed();
        let sealed = strict.seal(&id(1), Field::Recording, &plain).unwrap();
        prop_assert_eq!(strict.open(&id(1), Field::Recording, &sealed), Ok(plain));
        let at = at.index(sealed.len());
        let mut changed = sealed.to_vec();
        changed[at] ^= 1u8 << bit;
        prop_assert!(strict.open(&id(1), Field::Recording, &changed.into()).is_err());
        prop_assert!(strict.open(&id(1), Field::Recording, &sealed.slice(..at)).is_err());
    }
}
