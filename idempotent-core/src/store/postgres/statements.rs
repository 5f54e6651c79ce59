//! The statements, filled in for one table.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::{
    connect::LOCK_TIMEOUT,
    statement::{Statement, Value},
};
use crate::{
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, Renewal},
    record::Record,
    record_id::RecordId,
    store::sql::{TableName, abandoned_code, sql_millis},
};

/// Milliseconds since the Unix epoch. It moves on within a statement; where two columns need the same, the statement keeps it.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A condition that bounds, in a statement that is a transaction by itself, how long it waits for locks. It is evaluated before the first
/// record is looked at.
const BOUNDED: &str = "\n  AND (SELECT set_config('lock_timeout', '{lock_timeout}', true)) IS NOT NULL";

/// What stands around the end of a claim in a transaction that a handler has had. It returns one row: whether the transaction is the one that
/// was marked with the token `$4` when it began, and not another one that the handler has begun since; whether a record was changed; the
/// token, so that a response to another statement is not taken for this one; and whether the session has temporary tables. It waits at most
/// a second for the record; what comes then, such as deferred constraints, waits as long as before.
const WITHIN: [&str; 3] = [
    "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', '1s', true) AS now, \
     coalesce(current_setting('idempotent.transaction', true) = ($4)::text, false) AS ours), changed AS (",
    "\n  AND (SELECT ours AND now IS NOT NULL FROM bound)",
    ") SELECT set_config('lock_timeout', was, true), ours, changed, ($4)::bigint AS token, \
     pg_my_temp_schema()::bigint AS temporary FROM bound CROSS JOIN (SELECT count(*) > 0 AS changed FROM changed) AS counted",
];

/// A statement, as it is in a transaction that a handler has had.
fn within(text: &str) -> String {
    let [before, conditions, after] = WITHIN;
    let text = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    [before, &text.replace("{bounded}", conditions), after].concat()
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// One statement an atomic step; each file says what its parameters are.
        pub(super) struct Statements {
            pub(super) names: Names,
            /// Claims in a transaction, whose wait the caller bounds.
            claim_within: SqlStr,
            start_over_within: SqlStr,
            take_over_within: SqlStr,
            /// `complete` and `abandon` in a transaction that a handler has had; see [`WITHIN`].
            complete_within: SqlStr,
            abandon_within: SqlStr,
            $($name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn new(names: Names) -> Self {
                Self::altered(names, |_, text| text.to_owned())
            }

            /// With the texts of other files.
            pub(super) fn altered(names: Names, alter: impl Fn(&str, &str) -> String) -> Self {
                let within = |name, text| names.filled(&within(&alter(name, text)));
                let complete_within = within("complete", include_str!("../../sql/postgres/complete.sql"));
                let abandon_within = within("abandon", include_str!("../../sql/postgres/abandon.sql"));
                let unbounded = Names { bounded: false, ..names.clone() };
                let alone = |name, text| unbounded.filled(&alter(name, text));
                let claim_within = alone("claim", include_str!("../../sql/postgres/claim.sql"));
                let start_over_within = alone("start_over", include_str!("../../sql/postgres/start_over.sql"));
                let take_over_within = alone("take_over", include_str!("../../sql/postgres/take_over.sql"));
                $(let $name = names.filled(&alter(stringify!($name), include_str!(concat!("../../sql/postgres/", stringify!($name), ".sql"))));)*
                Self {
                    names, claim_within, start_over_within, take_over_within, complete_within, abandon_within, $($name,)*
                }
            }
        }
    };
}

statements! {
    read, claim, start_over, take_over, hold, shorten, renew, complete, release, abandon, resolve_complete, resolve_release, purge,
    shorten_expired,
}

/// Where the records are.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Without one, the first of the server's `search_path`.
    pub(super) schema: Option<TableName>,
    pub(super) table: TableName,
    /// Whether each statement has to bound its waits itself, since its session has no settings of ours.
    pub(super) bounded: bool,
}

impl Names {
    /// A text with the names, which [`TableName`] has checked, and the time.
    pub(super) fn fill(&self, text: &str) -> String {
        let schema = self.schema.as_ref().map(|schema| format!("\"{}\".", schema.as_str())).unwrap_or_default();
        // Comments stay here; parameters that are written out would be written there too.
        let text = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        let bounded = if self.bounded { BOUNDED.replace("{lock_timeout}", LOCK_TIMEOUT) } else { String::new() };
        let text = text.replace("{schema}", &schema).replace("{bounded}", &bounded);
        self.table.fill(&text, NOW)
    }

    pub(super) fn filled(&self, text: &str) -> SqlStr {
        // Clones of a shared text do not copy it.
        AssertSqlSafe(std::sync::Arc::<str>::from(self.fill(text))).into_sql_str()
    }
}

impl Statements {
    pub(super) fn read<'a>(&'a self, id: &'a RecordId) -> Statement<'a> {
        Statement::new(&self.read, vec![bytes(id.as_bytes())])
    }

    pub(super) fn claim<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::confidential(&self.claim, claiming(id, claim, [ttl, abandoned]))
    }

    pub(super) fn claim_within<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::confidential(&self.claim_within, claiming(id, claim, [ttl, abandoned]))
    }

    pub(super) fn start_over<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::confidential(&self.start_over, claiming(id, claim, [ttl, abandoned, bytes(seen.as_bytes())]))
    }

    pub(super) fn take_over<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: u32) -> Statement<'a> {
        Statement::confidential(&self.take_over, claiming(id, claim, [Value::Int(i64::from(seen))]))
    }

    /// [`start_over`](Self::start_over) or [`take_over`](Self::take_over).
    pub(super) fn replace_within<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        (seen, expired): (&'a Record, bool),
    ) -> Statement<'a> {
        if expired {
            Statement { text: &self.start_over_within, ..self.start_over(id, claim, &seen.owner) }
        } else {
            Statement { text: &self.take_over_within, ..self.take_over(id, claim, seen.attempt) }
        }
    }

    pub(super) fn hold<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        Statement::confidential(&self.hold, vec![bytes(id.as_bytes()), fingerprint(claim), bytes(seen.as_bytes())])
    }

    pub(super) fn shorten<'a>(&'a self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.shorten, seen, [])
    }

    pub(super) fn shorten_expired(&self) -> Statement<'_> {
        Statement::new(&self.shorten_expired, Vec::new())
    }

    pub(super) fn renew<'a>(&'a self, leases: &'a [Renewal]) -> Statement<'a> {
        let ids = leases.iter().map(|renewal| renewal.lease.id.as_bytes().as_slice()).collect();
        let owners = leases.iter().map(|renewal| renewal.lease.owner.as_bytes().as_slice()).collect();
        let extends = leases.iter().map(|renewal| sql_millis(renewal.extend)).collect();
        Statement::new(&self.renew, vec![Value::ByteArrays(ids), Value::ByteArrays(owners), Value::Ints(extends)])
    }

    pub(super) fn complete<'a>(&'a self, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
        completing(&self.complete, lease, recording)
    }

    pub(super) fn complete_within<'a>(&'a self, lease: &'a Lease, recording: &'a [u8], token: i64) -> Statement<'a> {
        fenced(&self.complete_within, lease, [bytes(recording), Value::Int(token)])
    }

    pub(super) fn abandon_within<'a>(&'a self, lease: &'a Lease, policy: Abandoned, token: i64) -> Statement<'a> {
        fenced(&self.abandon_within, lease, [Value::Int(abandoned_code(policy)), Value::Int(token)])
    }

    pub(super) fn release<'a>(&'a self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.release, lease, [])
    }

    pub(super) fn abandon<'a>(&'a self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.abandon, lease, [Value::Int(abandoned_code(policy))])
    }

    pub(super) fn resolve_complete<'a>(&'a self, seen: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
        completing(&self.resolve_complete, seen, recording)
    }

    pub(super) fn resolve_release<'a>(&'a self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.resolve_release, seen, [])
    }

    pub(super) fn purge(&self, limit: u32) -> Statement<'_> {
        Statement::new(&self.purge, vec![Value::Int(i64::from(limit))])
    }
}

fn bytes(bytes: &[u8]) -> Value<'_> {
    Value::Bytes(Cow::Borrowed(bytes))
}

fn fingerprint(claim: &Claim) -> Value<'static> {
    Value::Bytes(claim.fingerprint.to_bytes().to_vec().into())
}

fn lasting(claim: &Claim) -> [Value<'static>; 2] {
    [Value::Int(sql_millis(claim.ttl)), Value::Int(abandoned_code(claim.abandoned))]
}

fn claiming<'a, const N: usize>(id: &'a RecordId, claim: &'a Claim, more: [Value<'a>; N]) -> Vec<Value<'a>> {
    let owner = bytes(claim.owner.as_bytes());
    let first = [bytes(id.as_bytes()), fingerprint(claim), owner, Value::Int(sql_millis(claim.lease))];
    first.into_iter().chain(more).collect()
}

fn fenced<'a, const N: usize>(text: &'a SqlStr, lease: &'a Lease, more: [Value<'a>; N]) -> Statement<'a> {
    let first = [bytes(lease.id.as_bytes()), bytes(lease.owner.as_bytes())];
    Statement::new(text, first.into_iter().chain(more).collect())
}

fn completing<'a>(text: &'a SqlStr, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
    Statement { confidential: true, ..fenced(text, lease, [bytes(recording)]) }
}

#[cfg(test)]
impl super::PostgresStore {
    /// The store with other statements; `alter` is told the name of a file and what is in it.
    pub(crate) fn altered(self, alter: impl Fn(&str, &str) -> String) -> Self {
        let statements = Statements::altered(self.statements.names.clone(), alter);
        Self { statements: std::sync::Arc::new(statements), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_in_a_statement_is_filled() {
        let schema = TableName::new("mine").ok();
        let statements = Statements::new(Names { schema, ..Names::default() });
        assert!(statements.claim.as_str().contains(r#"INSERT INTO "mine"."idempotency_records""#));
        for text in [
            &statements.claim,
            &statements.claim_within,
            &statements.complete_within,
            &statements.renew,
            &statements.purge,
        ] {
            assert!(!text.as_str().contains(['{', '}']), "{}", text.as_str());
        }
    }
}
