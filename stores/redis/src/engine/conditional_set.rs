//! `SET … IFEQ`, which replaces a value if it is still the expected one.
//!
//! The expiry is a length (`PX`), not a point in time (`PXAT`). The server propagates `SET … IFEQ …
//! PX` as a plain `SET … PXAT`, but `SET … IFEQ … PXAT` and `KEEPTTL` as they are, which an older
//! replica refuses and acknowledges all the same. A length is also right for a command that arrives
//! late: a point in time that has passed would delete the record.

use std::io::Write as _;

use redis::{Cmd, RedisWrite as _, Value};

use crate::{error::CallFailure, lua::MAX_DIGITS};
use idempotent_core::store::ConnectionState::Unusable;

/// `SET key value IFEQ expected PX left`, with a value of two parts.
pub(crate) fn set_if_equal(key: &[u8], value: [&[u8]; 2], expected: &[u8], left: u64) -> Cmd {
    let [head, recording] = value;
    let length = key.len() + head.len() + recording.len() + expected.len();
    let mut set = Cmd::with_capacity(7, "SETIFEQPX".len() + length + MAX_DIGITS);
    set.arg("SET").arg(key);
    {
        let mut value = set.writer_for_next_arg();
        // Writing to memory does not fail.
        let _ = value.write_all(head).and_then(|()| value.write_all(recording));
    }
    set.arg("IFEQ").arg(expected).arg("PX").arg(left);
    set
}

/// Returns the route of a command that has replaced the value; `None` if the script has to decide.
pub(crate) fn replaced<R>(sent: Result<(Value, R), CallFailure>) -> Result<Option<R>, CallFailure> {
    match sent {
        Ok((Value::Okay, route)) => Ok(Some(route)),
        // The record has changed, or an earlier call whose response was lost has completed it.
        Ok((Value::Nil, _)) => Ok(None),
        Ok(_) => Err(CallFailure::Unexpected),
        Err(failure) if failure.class().connection == Unusable => Err(failure),
        // A server that is full, or does not know the option, still executes the script. The script
        // passes too if the value was replaced in spite of the error.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replied(reply: &str) -> Result<Option<()>, CallFailure> {
        let value = redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap();
        replaced(value.extract_error().map(|value| (value, ())).map_err(CallFailure::from))
    }

    #[test]
    fn the_command_has_the_condition_and_the_expiry() {
        let mut expected = redis::cmd("SET");
        expected.arg("key").arg("head, recording").arg("IFEQ").arg("old").arg("PX").arg("5000");
        let set = set_if_equal(b"key", [b"head, ", b"recording"], b"old", 5_000);
        assert_eq!(set.get_packed_command(), expected.get_packed_command());
    }

    #[test]
    fn what_is_not_replaced_is_left_to_the_script() {
        assert_eq!(replied("+OK").unwrap(), Some(()));
        for reply in [
            "$-1",
            "-ERR syntax error",
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "-NOREPLICAS Not enough good replicas to write.",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ] {
            assert_eq!(replied(reply).unwrap(), None, "{reply}");
        }
        assert!(matches!(replied(":1"), Err(CallFailure::Unexpected)));
        // The connection is lost, and another one is needed for any command.
        assert!(replied("-READONLY You can't write against a read only replica.").is_err());
        for lost in [CallFailure::ResponseTimeout, CallFailure::ConnectionClosed] {
            assert!(replaced::<()>(Err(lost)).is_err());
        }
    }
}
