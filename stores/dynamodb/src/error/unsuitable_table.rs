//! What a table lacks.

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnsuitableTable {
    #[error("the table `{0}` does not exist; call `migrate` to create it")]
    Missing(String),
    #[error("the key of the table is not `id`, a binary partition key without a sort key")]
    Key,
    #[error(
        "the table has no index `held` with the partition key `held` (string), the sort key \
         `first_seen` (number) and the projection `KEYS_ONLY`; call `migrate` to create it"
    )]
    Index,
    #[error("the time to live of the table is not enabled for `gone`; call `migrate` to enable it")]
    NoTimeToLive,
    #[error("the time to live of the table is enabled for `{0}` instead of `gone`")]
    OtherTimeToLive(String),
    #[error(
        "the table is a global table with eventual consistency: two Regions could grant the same \
         key; use a table of one Region, or set `single_writer_region` if only one Region writes"
    )]
    GlobalTable,
    #[error(
        "the table is a global table with strong consistency, which supports neither transactions \
         nor a time to live; use a table of one Region"
    )]
    StrongGlobalTable,
}
