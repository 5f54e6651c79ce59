//! The producer of the messages.

use redis::Commands;

use super::consumer::{STREAM, Setting};

/// How many messages wait at least when a consumer is killed.
const WAITING: usize = 100;
const ACCOUNTS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// A message, whose deposit follows from its number.
pub(super) struct Message {
    pub(super) id: String,
    account: &'static str,
    cents: i64,
}

impl Message {
    /// One of 16 messages is invalid.
    fn new(number: usize) -> Self {
        let cents = if number % 16 == 15 { -1 } else { fastrand::i64(1..1000) };
        Self { id: format!("d-{number}"), account: fastrand::choice(ACCOUNTS).unwrap(), cents }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.cents > 0
    }
}

/// Sends messages, some of them twice.
pub(super) struct Producer<'a> {
    setting: &'a Setting,
    messages: Vec<Message>,
    repeated: usize,
}

impl<'a> Producer<'a> {
    pub(super) fn new(setting: &'a Setting) -> Self {
        Self { setting, messages: Vec::new(), repeated: 0 }
    }

    /// Sends messages until enough of them wait for a consumer.
    pub(super) fn send_enough(&mut self) {
        while self.setting.group().waiting < WAITING {
            let message = Message::new(self.messages.len());
            self.send(&message);
            self.messages.push(message);
            if fastrand::u8(..8) == 0 {
                self.repeated += 1;
                let first = self.messages.len().saturating_sub(20);
                self.send(&self.messages[fastrand::usize(first..self.messages.len())]);
            }
        }
    }

    fn send(&self, message: &Message) {
        let cents = message.cents.to_string();
        let fields = [("id", &*message.id), ("account", message.account), ("cents", &*cents)];
        let _: Option<String> = self.setting.redis().xadd(STREAM, "*", &fields).unwrap();
    }

    pub(super) fn sent(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn repeated(&self) -> usize {
        self.repeated
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// The message with this id.
    pub(super) fn message(&self, id: &str) -> Option<&Message> {
        self.messages.get(id.strip_prefix("d-")?.parse::<usize>().ok()?)
    }
}
