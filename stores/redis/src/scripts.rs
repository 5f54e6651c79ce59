//! The Lua scripts.

use std::sync::LazyLock;

use redis::{Cmd, Script as Hashed};

/// The most digits of a number in a command.
pub(super) const MAX_DIGITS: usize = 20;

/// A script and its hash, by which the server caches it.
pub(super) struct Script {
    code: String,
    hash: String,
}

/// An argument of a script.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

impl Arg<'_> {
    fn max_len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(_) => MAX_DIGITS,
        }
    }
}

/// Defines a script. `allow-oom` lets a full server note for, complete, renew and release claims;
/// only new claims are refused.
macro_rules! script {
    ($name:ident, $flags:literal, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                "#!lua",
                $flags,
                "\n",
                $(include_str!(concat!("lua/", $file))),+
            ))
        });
    };
}

script!(CLAIM, "", "record.lua", "claim.lua");
script!(COMPLETE, " flags=allow-oom", "complete_first.lua", "record.lua", "complete.lua");
script!(NOTE, " flags=allow-oom", "record.lua", "note.lua");
script!(INDEX_INPUT, " flags=allow-oom", "index_input.lua");
script!(RENEW, " flags=allow-oom", "record.lua", "renew.lua");
script!(RELEASE, " flags=allow-oom", "record.lua", "release.lua");
script!(ABANDON, " flags=allow-oom", "record.lua", "abandon.lua");
script!(HOLD_AGAIN, " flags=allow-oom", "record.lua", "hold_again.lua");
script!(RESOLVE, " flags=allow-oom", "record.lua", "resolve.lua");
script!(CHECK, " flags=allow-oom", "check.lua");
script!(LOOK_UP, " flags=no-writes", "record.lua", "look_up.lua");

impl Script {
    fn new(code: &str) -> Self {
        Self { code: code.to_owned(), hash: Hashed::new(code).get_hash().to_owned() }
    }

    /// Replaces the texts of some files.
    #[cfg(feature = "internals")]
    pub(super) fn altered(&self, files: &[(String, String)]) -> Self {
        Self::new(
            &files
                .iter()
                .fold(self.code.clone(), |code, (file, text)| code.replacen(file, text, 1)),
        )
    }

    /// A call by the script's hash, which the server may not have cached.
    pub(super) fn by_hash(&self, key: &[u8], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, key, args)
    }

    /// A call with the script's text, which the server then caches.
    pub(super) fn by_code(&self, key: &[u8], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.code, key, args)
    }
}

fn call(command: &str, script: &str, key: &[u8], args: &[Arg<'_>]) -> Cmd {
    let length: usize = args.iter().map(Arg::max_len).sum();
    let length = length + command.len() + script.len() + 1 + key.len();
    let mut call = Cmd::with_capacity(args.len() + 4, length);
    call.arg(command).arg(script).arg(1).arg(key);
    for arg in args {
        match arg {
            Arg::Bytes(bytes) => call.arg(*bytes),
            Arg::Number(number) => call.arg(*number),
        };
    }
    call
}
