//! The Lua scripts.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script as Hashed};

/// The most digits of a number in a command.
pub(crate) const MAX_DIGITS: usize = 20;

/// A script and its hash, by which the server caches it.
pub(crate) struct Script {
    code: String,
    hash: String,
}

/// An argument of a script.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
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

/// Defines the scripts, each with its flags and files. `allow-oom` lets a full server note for,
/// complete, renew and release claims; only new claims are refused.
macro_rules! scripts {
    ($($name:ident: $flags:literal, $($file:literal),+;)+) => {
        /// The scripts of a store, one for each atomic step.
        pub(crate) struct Scripts {
            $(pub(crate) $name: Script,)+
        }

        impl Scripts {
            /// `of` gets the code of each script.
            pub(crate) fn new(of: impl Fn(&str) -> String) -> Self {
                Self {
                    $($name: Script::new(of(concat!(
                        "#!lua",
                        $flags,
                        "\n",
                        $(include_str!(concat!("lua/", $file))),+
                    ))),)+
                }
            }
        }
    };
}

scripts! {
    claim: "", "record.lua", "claim.lua";
    complete: " flags=allow-oom", "complete_first.lua", "record.lua", "complete.lua";
    note: " flags=allow-oom", "record.lua", "note.lua";
    index_input: " flags=allow-oom", "index_input.lua";
    renew: " flags=allow-oom", "record.lua", "renew.lua";
    release: " flags=allow-oom", "record.lua", "release.lua";
    abandon: " flags=allow-oom", "record.lua", "abandon.lua";
    hold_again: " flags=allow-oom", "record.lua", "hold_again.lua";
    resolve: " flags=allow-oom", "record.lua", "resolve.lua";
    check: " flags=allow-oom", "check.lua";
    remove: " flags=allow-oom", "record.lua", "remove.lua";
    replace: " flags=allow-oom", "record.lua", "replace.lua";
    append_history: " flags=allow-oom", "record.lua", "append_history.lua";
    watch: " flags=allow-oom", "watch.lua";
    unwatch: " flags=allow-oom", "record.lua", "unwatch.lua";
    mend: " flags=allow-oom", "record.lua", "mend.lua";
    list: " flags=no-writes", "record.lua", "list.lua";
    look_up: " flags=no-writes", "record.lua", "look_up.lua";
}

/// The scripts of all stores.
static SHIPPED: LazyLock<Arc<Scripts>> = LazyLock::new(|| Arc::new(Scripts::new(str::to_owned)));

impl Scripts {
    pub(crate) fn shipped() -> Arc<Self> {
        SHIPPED.clone()
    }
}

impl Script {
    fn new(code: String) -> Self {
        let hash = Hashed::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// A call by the script's hash, which the server may not have cached.
    pub(crate) fn by_hash(&self, keys: &[&[u8]], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// A call with the script's text, which the server then caches.
    pub(crate) fn by_code(&self, keys: &[&[u8]], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.code, keys, args)
    }
}

fn call(command: &str, script: &str, keys: &[&[u8]], args: &[Arg<'_>]) -> Cmd {
    let length: usize = args.iter().map(Arg::max_len).sum();
    let length = length + keys.iter().map(|key| key.len()).sum::<usize>();
    let length = length + command.len() + script.len() + 1;
    let mut call = Cmd::with_capacity(args.len() + keys.len() + 3, length);
    call.arg(command).arg(script).arg(keys.len()).arg(keys);
    for arg in args {
        match arg {
            Arg::Bytes(bytes) => call.arg(*bytes),
            Arg::Number(number) => call.arg(*number),
        };
    }
    call
}
