//! The visits to the page. Their number is limited, because each has a worker process.

use std::{
    collections::HashMap,
    error::Error,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_web::rt::{spawn, time::sleep};

use crate::demo::{bank, key::Keys, visit::Visit};

/// How many visits there may be.
const MAX_VISITS: usize = 12;
/// How long a visit is kept that no page is open for.
const MAX_IDLE: Duration = Duration::from_secs(120);
/// The lengths of a visit's id, which the page draws.
const ID_LENGTH: std::ops::RangeInclusive<usize> = 8..=32;

/// All visits, and the bank and the store that they share.
pub(crate) struct Visits {
    all: Mutex<HashMap<String, Arc<Visit>>>,
    pub(crate) keys: Arc<Keys>,
    bank: OnceLock<String>,
    closed: AtomicBool,
}

impl Visits {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            all: Mutex::default(),
            keys: Arc::new(keys),
            bank: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Visit>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The visit with this id, if there is one.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Visit>> {
        let visit = self.all().get(id).cloned();
        visit.inspect(|visit| visit.touch())
    }

    /// The visit with this id, or a new one.
    pub(crate) fn open(&self, id: &str) -> Result<Arc<Visit>, &'static str> {
        if !ID_LENGTH.contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a visit is named by 8 to 32 letters and digits");
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err("the server is shutting down");
        }
        let mut all = self.all();
        if let Some(visit) = all.get(id) {
            visit.touch();
            return Ok(visit.clone());
        }
        if all.len() >= MAX_VISITS {
            let unused = all.values().filter(|visit| visit.log.streams() == 0);
            let oldest = unused.max_by_key(|visit| visit.idle()).map(|visit| visit.id.clone());
            let Some(oldest) = oldest else { return Err("this page is open too many times") };
            close(all.remove(&oldest));
        }
        let visit = Arc::new(Visit::new(id, self.keys.clone()));
        all.insert(id.to_owned(), visit.clone());
        Ok(visit)
    }

    /// The visit and the run of a user's name.
    pub(crate) fn of_user(&self, user: &str) -> Option<(Arc<Visit>, u64)> {
        let (id, run) = user.split_once('-')?;
        Some((self.find(id)?, run.parse().ok()?))
    }

    /// The URL of the bank, which is started by the first call.
    pub(crate) fn bank(self: &Arc<Self>) -> Result<&str, Box<dyn Error + Send + Sync>> {
        if let Some(url) = self.bank.get() {
            return Ok(url);
        }
        // Another thread may start a second bank at the same time. That bank gets no calls.
        let url = bank::start(self)?;
        Ok(self.bank.get_or_init(|| url))
    }

    /// Ends visits whose pages were closed, for as long as the server runs.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            sleep(MAX_IDLE / 4).await;
            let mut all = self.all();
            let is_over = |visit: &Visit| visit.log.streams() == 0 && visit.idle() > MAX_IDLE;
            all.extract_if(|_, visit| is_over(visit)).for_each(|(_, visit)| close(Some(visit)));
        }
    }

    /// Ends all visits, and refuses further ones.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let visits: Vec<_> = self.all().drain().map(|(_, visit)| visit).collect();
        for visit in visits {
            visit.close().await;
        }
        self.keys.remove();
    }
}

fn close(visit: Option<Arc<Visit>>) {
    if let Some(visit) = visit {
        spawn(async move { visit.close().await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn visits() -> Visits {
        Visits::new(Keys::open().await.unwrap())
    }

    #[actix_web::test]
    async fn the_number_of_visits_is_limited_and_an_unused_one_makes_place() {
        let visits = visits().await;
        let id = |number| format!("visit{number:03}");
        let streams: Vec<_> = (1..MAX_VISITS)
            .map(|number| Box::pin(visits.open(&id(number)).unwrap().log.clone().stream(None)))
            .collect();
        let unused = visits.open(&id(0)).unwrap();
        let last = visits.open(&id(MAX_VISITS)).unwrap();
        assert!(visits.find(&unused.id).is_none() && visits.find(&last.id).is_some());
        let _used = Box::pin(last.log.clone().stream(None));
        assert!(visits.open("visit999").is_err());
        assert!(visits.open(&id(1)).is_ok());
        drop(streams);
        assert!(visits.open("visit999").is_ok());
    }

    #[actix_web::test]
    async fn a_visit_is_named_by_letters_and_digits_and_none_opens_after_the_end() {
        let visits = visits().await;
        for id in ["", "short", "with-dash", "with/slash", &"x".repeat(33)] {
            assert!(visits.open(id).is_err(), "{id:?}");
        }
        visits.close().await;
        assert!(visits.open("visit001").is_err());
    }

    #[actix_web::test]
    async fn a_user_belongs_to_a_visit_and_a_run() {
        let visits = visits().await;
        let visit = visits.open("visit001").unwrap();
        let (found, run) = visits.of_user(&visit.user(7)).unwrap();
        assert_eq!((found.id.as_str(), run), ("visit001", 7));
        assert!(visits.of_user("alice").is_none() && visits.of_user("visit002-1").is_none());
    }
}
