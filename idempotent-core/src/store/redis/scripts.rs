//! The steps that a script takes.

use std::sync::LazyLock;

use redis::{Cmd, Script as Hashed};

/// A step as the server runs it, and the name under which it remembers it.
pub(super) struct Script {
    code: String,
    hash: String,
}

/// What a step is told.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

/// `allow-oom`: a full server refuses new claims, and nothing that ends or keeps one.
macro_rules! script {
    ($name:ident, $flags:literal, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!("#!lua", $flags, "\n", $(include_str!(concat!("../../lua/", $file))),+)));
    };
}

script!(CLAIM, "", "record.lua", "claim.lua");
script!(COMPLETE, " flags=allow-oom", "complete_first.lua", "record.lua", "complete.lua");
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

    /// The step with other texts in place of some of its files.
    #[cfg(test)]
    pub(super) fn altered(&self, files: &[(String, String)]) -> Self {
        Self::new(&files.iter().fold(self.code.clone(), |code, (file, text)| code.replacen(file, text, 1)))
    }

    /// The call by its hash, which the server may have forgotten.
    pub(super) fn by_hash(&self, key: &[u8], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, key, args)
    }

    /// The call that also makes the server remember it.
    pub(super) fn by_code(&self, key: &[u8], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.code, key, args)
    }
}

fn call(command: &str, script: &str, key: &[u8], args: &[Arg<'_>]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(1).arg(key);
    for arg in args {
        match arg {
            Arg::Bytes(bytes) => call.arg(*bytes),
            Arg::Number(number) => call.arg(*number),
        };
    }
    call
}
