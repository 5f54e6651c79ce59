//! One run of a story: a key, and the books of both sides.

use std::{collections::HashMap, time::Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::{
    demo::{Side, checkout::Charge},
    ledger::new_id,
};

/// How many requests a run may send.
const MAX_REQUESTS: u32 = 60;
/// How many of them may be in progress.
const MAX_IN_PROGRESS: usize = 12;

/// How the bank behaves.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BankMode {
    #[default]
    Fast,
    /// It books a charge, and responds five seconds later.
    Slow,
    /// It books a charge, and responds when it is in another mode.
    Stuck,
    /// It refuses every call and books nothing.
    Down,
}

/// A run. A new one has a new key and new books.
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) key: String,
    started: Instant,
    pub(crate) bank: watch::Sender<BankMode>,
    bare: Books,
    guarded: Books,
    requests: u32,
    in_progress: HashMap<u32, oneshot::Sender<()>>,
}

/// What happened on one side.
#[derive(Default, Serialize)]
pub(crate) struct Books {
    pub(crate) requests: u32,
    /// How often the handler ran: each run calls the bank once.
    pub(crate) runs: u32,
    pub(crate) charges: Vec<Charge>,
}

impl Run {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            key: uuid::Uuid::new_v4().to_string(),
            started: Instant::now(),
            bank: watch::Sender::new(BankMode::Fast),
            bare: Books::default(),
            guarded: Books::default(),
            requests: 0,
            in_progress: HashMap::new(),
        }
    }

    /// An event of this run: its fields, and its time since the start of the run.
    pub(crate) fn event(&self, kind: &str, mut fields: Value) -> Value {
        if let Some(fields) = fields.as_object_mut() {
            let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            fields.insert("type".to_owned(), kind.into());
            fields.insert("at".to_owned(), millis.into());
        }
        fields
    }

    pub(crate) fn books(&self, side: Side) -> &Books {
        match side {
            Side::Bare => &self.bare,
            Side::Guarded => &self.guarded,
        }
    }

    fn books_mut(&mut self, side: Side) -> &mut Books {
        match side {
            Side::Bare => &mut self.bare,
            Side::Guarded => &mut self.guarded,
        }
    }

    /// Counts a request. Returns its number, and a channel that is closed when the shopper gives
    /// up.
    pub(crate) fn open_request(
        &mut self,
        side: Side,
    ) -> Result<(u32, oneshot::Receiver<()>), &'static str> {
        if self.requests >= MAX_REQUESTS || self.in_progress.len() >= MAX_IN_PROGRESS {
            return Err("this run has sent enough requests; start again");
        }
        self.requests += 1;
        self.books_mut(side).requests += 1;
        let (give_up, gives_up) = oneshot::channel();
        self.in_progress.insert(self.requests, give_up);
        Ok((self.requests, gives_up))
    }

    pub(crate) fn close_request(&mut self, request: u32) {
        self.in_progress.remove(&request);
    }

    /// Makes the shopper give up on a request, or on all of them.
    pub(crate) fn give_up(&mut self, request: Option<u32>) {
        let number = |(number, _): &(u32, oneshot::Sender<()>)| {
            request.is_none_or(|request| request == *number)
        };
        let (left, kept) = self.in_progress.drain().partition(number);
        self.in_progress = kept;
        let _: HashMap<u32, oneshot::Sender<()>> = left; // Dropping a sender wakes its receiver.
    }

    /// Counts a run of the handler, and books its charge. Returns `None` if the bank is down.
    pub(crate) fn charge(&mut self, side: Side, amount: u32) -> Option<String> {
        let is_down = *self.bank.borrow() == BankMode::Down;
        let books = self.books_mut(side);
        books.runs += 1;
        if is_down {
            return None;
        }
        let charge = new_id("ch").chars().take("ch_".len() + 8).collect::<String>();
        books.charges.push(Charge { charge: charge.clone(), amount });
        Some(charge)
    }

    /// What the page compares its numbers with.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "run": self.number,
            "key": self.key,
            "bank": *self.bank.borrow(),
            "bare": self.bare,
            "guarded": self.guarded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_a_charge_unless_the_bank_is_down() {
        let mut run = Run::new(1);
        assert!(run.charge(Side::Bare, 1).is_some());
        assert!(run.charge(Side::Bare, 1).is_some());
        run.bank.send_replace(BankMode::Down);
        assert_eq!(run.charge(Side::Guarded, 1), None);
        let numbers = |side| (run.books(side).runs, run.books(side).charges.len());
        assert_eq!((numbers(Side::Bare), numbers(Side::Guarded)), ((2, 2), (1, 0)));
    }

    #[test]
    fn the_requests_of_a_run_are_limited() {
        let mut run = Run::new(1);
        for _ in 0..MAX_IN_PROGRESS {
            run.open_request(Side::Bare).unwrap();
        }
        assert!(run.open_request(Side::Bare).is_err());
        run.give_up(None);
        assert!(run.in_progress.is_empty());
        let opened = (0..100).take_while(|_| {
            run.open_request(Side::Bare).map(|(n, _)| run.close_request(n)).is_ok()
        });
        assert_eq!(opened.count(), usize::try_from(MAX_REQUESTS).unwrap() - MAX_IN_PROGRESS);
    }

    #[actix_web::test]
    async fn a_shopper_gives_up_one_request() {
        let mut run = Run::new(1);
        let (first, gives_up) = run.open_request(Side::Bare).unwrap();
        let (_, mut waits) = run.open_request(Side::Bare).unwrap();
        run.give_up(Some(first));
        assert!(gives_up.await.is_err());
        assert!(matches!(waits.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    }
}
