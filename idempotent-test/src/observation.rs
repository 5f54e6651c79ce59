//! What a test sees of a handler's effects.

use std::{collections::BTreeMap, fmt, rc::Rc, time::Duration};

use futures_util::{FutureExt, future::LocalBoxFuture};

/// How often each effect has happened, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<String, i128>);

/// The test's own look at the effects.
pub(crate) struct Observer(Box<dyn Fn() -> LocalBoxFuture<'static, Counts>>);

/// An effect that did not happen as often as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) effect: String,
    pub(crate) times: i128,
    pub(crate) expected: i128,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { effect, times, expected } = self;
        let unit = if *times == 1 { "time" } else { "times" };
        write!(f, "`{effect}` happened {times} {unit} instead of {expected}")
    }
}

impl Observer {
    pub(crate) fn new<C, N, V>(observe: impl AsyncFn() -> C + 'static) -> Self
    where
        C: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: TryInto<i128, Error: fmt::Debug>,
    {
        let observe = Rc::new(observe);
        Self(Box::new(move || {
            let observe = observe.clone();
            async move { Counts(observe().await.into_iter().map(counted).collect()) }.boxed_local()
        }))
    }

    /// Reads the counts once they no longer change: a task that the handler has spawned may have an
    /// effect a little later.
    pub(crate) async fn read(&self) -> Counts {
        let mut read = (self.0)().await;
        loop {
            tokio::time::sleep(SETTLED).await;
            let again = (self.0)().await;
            if again == read {
                return read;
            }
            read = again;
        }
    }
}

fn counted<N, V>((name, count): (N, V)) -> (String, i128)
where
    N: Into<String>,
    V: TryInto<i128, Error: fmt::Debug>,
{
    let name = name.into();
    match count.try_into() {
        Ok(count) => (name, count),
        Err(error) => panic!("the count of `{name}` is too great: {error:?}"),
    }
}

/// How long effects must not change to be read.
const SETTLED: Duration = Duration::from_millis(2);

impl Counts {
    /// How often each effect has happened since then.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let before = |name| before.0.get(name).copied().unwrap_or_default();
        Self(self.0.iter().map(|(name, count)| (name.clone(), count - before(name))).collect())
    }

    /// The first effect that has happened.
    pub(crate) fn any(&self) -> Option<Difference> {
        self.difference(&Self::default(), false)
    }

    /// The first effect that differs from what is expected; with `may_be_less`, one that is more.
    pub(crate) fn difference(&self, expected: &Self, may_be_less: bool) -> Option<Difference> {
        let names = self.0.keys().chain(expected.0.keys());
        names
            .map(|effect| {
                let of = |counts: &Self| counts.0.get(effect).copied().unwrap_or_default();
                Difference { effect: effect.clone(), times: of(self), expected: of(expected) }
            })
            .find(|found| {
                found.times > found.expected || (found.times < found.expected && !may_be_less)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(refunds: i128) -> Counts {
        Counts([("refunds".to_owned(), refunds)].into())
    }

    #[test]
    fn an_effect_that_happened_too_often_or_too_rarely_is_a_difference() {
        let once = counts(1);
        for (times, may_be_less, expected) in [
            (1, false, None),
            (2, false, Some("`refunds` happened 2 times instead of 1")),
            (2, true, Some("`refunds` happened 2 times instead of 1")),
            (0, false, Some("`refunds` happened 0 times instead of 1")),
            (0, true, None),
        ] {
            let difference = counts(times).difference(&once, may_be_less);
            assert_eq!(difference.map(|found| found.to_string()).as_deref(), expected);
        }
        assert_eq!(counts(5).since(&counts(3)), counts(2));
    }
}
