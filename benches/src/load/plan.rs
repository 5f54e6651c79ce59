//! What a load is to do.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::{arguments::Arguments, cpu};

/// Which keys are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// Each key once.
    Fresh,
    /// Keys that were answered before the time began: so many.
    Replays(u64),
    /// New keys, and this share of ones that were answered.
    Mixed(f64),
}

impl Work {
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("replays", keys)) => Self::Replays(keys.parse().expect("a number of keys")),
            Some(("mixed", share)) => Self::Mixed(share.parse().expect("a share")),
            _ => Self::Fresh,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Fresh => "fresh".into(),
            Self::Replays(keys) => format!("replays:{keys}"),
            Self::Mixed(share) => format!("mixed:{share}"),
        }
    }
}

/// Processes whose time on a processor is taken, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(pub(crate) Vec<(String, u32)>);

impl Watched {
    pub(super) fn times(&self) -> Vec<Duration> {
        self.0.iter().map(|(_, root)| cpu::time_of_tree(*root)).collect()
    }

    pub(super) fn since(&self, before: &[Duration]) -> BTreeMap<String, f64> {
        let took = self.times().into_iter().zip(before).map(|(now, before)| now.saturating_sub(*before).as_secs_f64());
        self.0.iter().map(|(name, _)| name.clone()).zip(took).collect()
    }
}

/// A load, as its process is told of it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) to: SocketAddr,
    pub(crate) work: Work,
    pub(crate) connections: usize,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// So many requests instead of a duration.
    pub(crate) requests: Option<u64>,
    /// Other keys for another seed.
    pub(crate) seed: u64,
    /// The keys to be replayed are answered already.
    pub(crate) seeded: bool,
    pub(crate) watched: Watched,
    /// Nothing else is to run on the load's processor, so that it never sleeps, and no answer has to wake it.
    pub(crate) awake: bool,
}

impl Plan {
    pub(super) fn of(arguments: &Arguments) -> Self {
        let watch = |text: &str| {
            let (name, process) = text.split_once('=').expect("`--watch NAME=PROCESS`");
            (name.to_owned(), process.parse().expect("a process"))
        };
        Self {
            to: arguments.text("to").expect("`--to ADDRESS`").parse().expect("an address"),
            work: Work::parse(arguments.text("work").unwrap_or("fresh")),
            connections: arguments.number("connections", 64),
            warmup: arguments.seconds("warmup", 0.5),
            duration: arguments.seconds("seconds", 2.0),
            requests: arguments.text("requests").map(|requests| requests.parse().expect("a number of requests")),
            seed: arguments.number("seed", 0),
            seeded: arguments.has("seeded"),
            watched: Watched(arguments.all("watch").map(watch).collect()),
            awake: arguments.has("awake"),
        }
    }

    /// The words that say the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec!["load".to_owned()];
        let mut say = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        say("to", self.to.to_string());
        say("work", self.work.text());
        say("connections", self.connections.to_string());
        say("warmup", self.warmup.as_secs_f64().to_string());
        say("seconds", self.duration.as_secs_f64().to_string());
        say("seed", self.seed.to_string());
        if let Some(requests) = self.requests {
            say("requests", requests.to_string());
        }
        for (name, process) in &self.watched.0 {
            say("watch", format!("{name}={process}"));
        }
        let flags = [("--seeded", self.seeded), ("--awake", self.awake)];
        words.extend(flags.iter().filter(|(_, said)| *said).map(|(flag, _)| (*flag).to_owned()));
        words
    }
}
