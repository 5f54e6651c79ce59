//! How claims and completions were executed: in batches or alone.

use std::iter::Sum;

use super::Fleet;
use crate::environment::Environment;

/// Statements, and the steps in them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kind {
    batches: f64,
    /// Steps that a batch has settled.
    batched: f64,
    alone: f64,
}

/// The counts of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    claims: Kind,
    completions: Kind,
    /// The steps in batches, including those that were executed alone afterwards.
    in_batches: f64,
}

/// What only the statements of claims, and only those of completions, contain.
const CLAIMS: &str = "granted AS";
const COMPLETIONS: &str = "completed_at = CASE";
/// What only statements for many records contain.
const BATCH: &str = "FROM unnest(";

impl Counts {
    /// Reads the counts since the statistics were reset.
    pub(super) fn read(environment: &Environment, fleet: &Fleet) -> Self {
        Self {
            claims: Kind::read(environment, CLAIMS),
            completions: Kind::read(environment, COMPLETIONS),
            in_batches: fleet.batched_steps() as f64,
        }
    }

    pub(super) fn claims_per_batch(&self) -> f64 {
        self.claims.batched / self.claims.batches
    }

    pub(super) fn completions_per_batch(&self) -> f64 {
        self.completions.batched / self.completions.batches
    }

    /// The share of the steps that batches have settled.
    pub(super) fn in_batches(&self) -> f64 {
        let alone = self.claims.alone + self.completions.alone;
        self.settled() / (self.settled() + alone)
    }

    /// The share of the steps in batches that no batch has settled.
    pub(super) fn conflicts(&self) -> f64 {
        (self.in_batches - self.settled()) / self.in_batches
    }

    fn settled(&self) -> f64 {
        self.claims.batched + self.completions.batched
    }
}

impl Kind {
    fn read(environment: &Environment, text: &str) -> Self {
        let sum = |column: &str, operator: &str| {
            let query = format!(
                "SELECT coalesce(sum({column}), 0)::bigint FROM pg_stat_statements \
                 WHERE query LIKE '%{text}%' AND query {operator} '%{BATCH}%' \
                 AND query NOT LIKE '%pg_stat%'"
            );
            environment.postgres().number(environment, &query) as f64
        };
        Self {
            batches: sum("calls", "LIKE"),
            batched: sum("rows", "LIKE"),
            alone: sum("calls", "NOT LIKE"),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            batches: self.batches + other.batches,
            batched: self.batched + other.batched,
            alone: self.alone + other.alone,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            claims: sum.claims.plus(one.claims),
            completions: sum.completions.plus(one.completions),
            in_batches: sum.in_batches + one.in_batches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_all_runs_together() {
        let claims = Kind { batches: 2.0, batched: 60.0, alone: 30.0 };
        let completions = Kind { batches: 1.0, batched: 40.0, alone: 70.0 };
        let one = Counts { claims, completions, in_batches: 110.0 };
        let sum: Counts = [one, Counts::default(), one].into_iter().sum();
        assert_eq!(sum.claims_per_batch(), 30.0);
        assert_eq!(sum.completions_per_batch(), 40.0);
        assert_eq!(sum.in_batches(), 0.5);
        assert_eq!(sum.conflicts(), 20.0 / 220.0);
        assert!(Counts::default().claims_per_batch().is_nan());
    }
}
