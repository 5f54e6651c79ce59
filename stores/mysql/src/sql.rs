//! The SQL statements, with the names of the database and the table filled in.

use crate::{
    server::Flavor,
    sql::positional::{Positional, Repeated},
};
use idempotent_core::{
    Lease, OwnerToken, Record, RecordId, RecordState,
    protocol::{AuditEntry, Claim, Resolution},
};
use idempotent_sql::{
    Dialect, TableName, for_each_step,
    statement::{Statement, Value},
    steps::{Steps, audit_values, claiming, first_values, sql_millis},
};

pub(crate) mod batches;
pub(crate) mod positional;

const DIALECT: Dialect = Dialect {
    // `NOW()` would be the time at which the statement began, before it waited for a lock.
    now: "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    appended: "RIGHT(CONCAT(history, {letter}, LPAD(LOWER(HEX({now})), 11, '0')), {characters})",
};

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        Steps { $($name: include_str!(concat!("sql/", stringify!($name), ".sql")),)* }
    };
}

/// The texts of the files of the steps.
const STEPS: Steps<&str> = for_each_step!(files);

macro_rules! further_files {
    ($($name:ident),* $(,)?) => {
        /// The texts of all files, by their names.
        pub(crate) struct Texts {
            steps: Steps<String>,
            $($name: String,)*
        }

        impl Texts {
            /// `of` gets the name and the text of each file.
            pub(crate) fn new(of: impl Fn(&str, &str) -> String) -> Self {
                Self {
                    steps: STEPS.map(|name, text| of(name, text)),
                    $($name: of(
                        stringify!($name),
                        include_str!(concat!("sql/", stringify!($name), ".sql")),
                    ),)*
                }
            }
        }
    };
}

further_files!(
    start_over,
    renew_own,
    claim_batch,
    complete_batch,
    existing_batch,
    renew_locked,
    owners,
    delete_locked,
    keep_locked,
    shorten_locked,
    before,
    log,
    clock,
);

impl Default for Texts {
    fn default() -> Self {
        Self::new(|_, text| text.to_owned())
    }
}

/// The database and the name of the table.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// `None` for the default database of the connections, before it was read.
    pub(crate) database: String,
    pub(crate) table: TableName,
}

impl Names {
    /// Fills in the names and the time. The database was verified to have neither a quote nor a
    /// brace in its name.
    pub(crate) fn fill(&self, text: &str) -> String {
        let text =
            text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        let text = text
            .replace("{quoted_schema}", &self.database)
            .replace("{schema}", &format!("`{}`.", self.database));
        self.table.fill(&text, &DIALECT)
    }

    fn filled(&self, text: &str) -> Positional {
        Positional::new(&self.fill(text))
    }

    fn repeated(&self, text: &str) -> Repeated {
        Repeated::new(&self.fill(text))
    }
}

/// The statements of one table; the header of each file names the parameters.
pub(crate) struct Statements {
    pub(crate) names: Names,
    pub(crate) steps: Steps<Positional>,
    pub(crate) batches: batches::BatchStatements,
    pub(crate) renew: Repeated,
    pub(crate) renew_locked: Repeated,
    pub(crate) owners: Repeated,
    pub(crate) delete_locked: Repeated,
    pub(crate) keep_locked: Repeated,
    pub(crate) shorten_locked: Repeated,
    pub(crate) clock: Positional,
    pub(crate) before: Positional,
    /// Shows whether the name of the table means a temporary table.
    pub(crate) shown: String,
    start_over: Positional,
    renew_own: Positional,
    log: Positional,
    /// The steps in the session of a handler, which may have changed its settings.
    pub(crate) in_transaction: InTransaction,
}

/// The steps that a transaction of a handler has.
pub(crate) struct InTransaction {
    claim: Positional,
    start_over: Positional,
    take_over: Positional,
    renew_own: Positional,
    pub(crate) note: Positional,
    pub(crate) complete: Positional,
    pub(crate) abandon: Positional,
}

impl Statements {
    pub(crate) fn new(names: Names, flavor: Flavor, texts: &Texts) -> Self {
        let steps = texts.steps.map(|_, text| names.filled(text));
        let own =
            |text: &str, lock| Positional::new(&flavor.with_own_settings(&names.fill(text), lock));
        // A claim is repeated; the owner's step would be lost with the transaction.
        let (at_once, waiting) = (|text| own(text, 0), |text| own(text, 1));
        Self {
            batches: batches::BatchStatements {
                existing: names.repeated(&texts.existing_batch),
                claim: names.repeated(&texts.claim_batch),
                complete: names.repeated(&texts.complete_batch),
            },
            renew: names.repeated(&texts.steps.renew),
            renew_locked: names.repeated(&texts.renew_locked),
            owners: names.repeated(&texts.owners),
            delete_locked: names.repeated(&texts.delete_locked),
            keep_locked: names.repeated(&texts.keep_locked),
            shorten_locked: names.repeated(&texts.shorten_locked),
            clock: names.filled(&texts.clock),
            before: names.filled(&texts.before),
            shown: names.fill("SHOW CREATE TABLE {schema}`{table}`"),
            start_over: names.filled(&texts.start_over),
            renew_own: names.filled(&texts.renew_own),
            log: names.filled(&texts.log),
            in_transaction: InTransaction {
                claim: at_once(&texts.steps.claim),
                start_over: at_once(&texts.start_over),
                take_over: at_once(&texts.steps.take_over),
                renew_own: at_once(&texts.renew_own),
                note: waiting(&texts.steps.note),
                complete: waiting(&texts.steps.complete),
                abandon: waiting(&texts.steps.abandon),
            },
            steps,
            names,
        }
    }

    pub(crate) fn clock(&self) -> Statement<'_, Positional> {
        Statement::new(&self.clock, Vec::new())
    }

    pub(crate) fn start_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: &'a OwnerToken,
    ) -> Statement<'a, Positional> {
        claiming(&self.start_over, id, claim)
            .with_values(first_values(claim, claim.abandoned))
            .with_values([Value::bytes(seen.as_bytes())])
    }

    /// Renews the lease of a claim that was sent again.
    fn renew_own<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a, Positional> {
        let values = vec![
            Value::bytes(id.as_bytes()),
            Value::bytes(claim.owner.as_bytes()),
            Value::Int(sql_millis(claim.lease)),
        ];
        Statement::new(&self.renew_own, values)
    }

    /// Writes what the state machine has decided of a claim for the record that was seen.
    pub(crate) fn claim_seen<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        (seen, lease, expired): (&'a Record, &'a Lease, bool),
        new: &Record,
    ) -> Statement<'a, Positional> {
        if expired {
            self.start_over(id, claim, &seen.owner)
        } else if new.state == RecordState::Held {
            self.steps.hold(id, claim, &seen.owner)
        } else if new.owner != claim.owner {
            self.steps.shorten(lease)
        } else if seen.owner == claim.owner {
            self.renew_own(id, claim)
        } else {
            self.steps.take_over(id, claim, seen.attempt)
        }
    }

    /// The claim of a key that has no record, in a transaction of a handler.
    pub(crate) fn claim_in_transaction<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
    ) -> Statement<'a, Positional> {
        self.steps.claim(id, claim).with_text(&self.in_transaction.claim)
    }

    /// The claim of a key whose record was seen, in a transaction of a handler.
    pub(crate) fn replace_in_transaction<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        (seen, expired): (&'a Record, bool),
    ) -> Statement<'a, Positional> {
        if expired {
            self.start_over(id, claim, &seen.owner).with_text(&self.in_transaction.start_over)
        } else if seen.owner == claim.owner {
            self.renew_own(id, claim).with_text(&self.in_transaction.renew_own)
        } else {
            let taking_over = self.steps.take_over(id, claim, seen.attempt);
            taking_over.with_text(&self.in_transaction.take_over)
        }
    }

    /// Resolves a held record.
    pub(crate) fn resolve<'a>(
        &'a self,
        seen: &'a Lease,
        resolution: &'a Resolution,
    ) -> Statement<'a, Positional> {
        match resolution {
            Resolution::Complete(recording) => self.steps.resolve_complete(seen, recording),
            Resolution::Release => self.steps.resolve_release(seen),
        }
    }

    /// Reads and locks the state of the record that an operator decides about.
    pub(crate) fn before<'a>(&'a self, id: &'a RecordId) -> Statement<'a, Positional> {
        Statement::new(&self.before, vec![Value::bytes(id.as_bytes())])
    }

    /// Adds an entry to the log of operators' decisions, with the state that the record had.
    pub(crate) fn log<'a>(
        &'a self,
        entry: &'a AuditEntry,
        before: String,
    ) -> Statement<'a, Positional> {
        Statement::new(&self.log, audit_values(entry)).with_values([Value::Text(before.into())])
    }
}
