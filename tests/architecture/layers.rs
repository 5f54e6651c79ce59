//! The modules at the root of each crate. Each may use those that are listed below it.

/// Of `idempotent-core`.
pub(crate) const CORE: &[&str] = &[
    "conformance",
    "internals",
    "job",
    "runtime",
    "store",
    "report",
    "transition",
    "protocol",
    "record",
    "keyring",
    "recording",
    "lease",
    "record_id",
    "fingerprint",
    "key",
    "scope",
    "policy",
    "error",
    "history",
    "clock",
    "short_text",
    "sync",
];

/// Of `idempotent-http`.
pub(crate) const HTTP: &[&str] = &[
    "openapi",
    "specification",
    "dialect",
    "problem",
    "report",
    "recording",
    "digest",
    "not_run",
    "key",
    "header_names",
];

/// Of `idempotent-postgres`.
pub(crate) const POSTGRES: &[&str] = &[
    "internals",
    "store",
    "options",
    "administration",
    "migrate",
    "transaction",
    "claim",
    "engine",
    "connect",
    "sql",
    "server",
    "error",
];

/// Of `idempotent-sqlite`.
pub(crate) const SQLITE: &[&str] = &[
    "internals",
    "store",
    "options",
    "administration",
    "migrate",
    "transaction",
    "claim",
    "engine",
    "connect",
    "sql",
    "error",
];

/// Of `idempotent-mysql`.
pub(crate) const MYSQL: &[&str] = &[
    "internals",
    "store",
    "options",
    "administration",
    "migrate",
    "transaction",
    "claim",
    "engine",
    "connect",
    "sql",
    "server",
    "error",
];

/// Of `idempotent-redis`.
pub(crate) const REDIS: &[&str] = &[
    "internals",
    "administration",
    "store",
    "connect",
    "notes",
    "claim",
    "engine",
    "options",
    "net",
    "error",
    "encoding",
    "lua",
];

/// Of `idempotent-dynamodb`.
pub(crate) const DYNAMODB: &[&str] = &[
    "internals",
    "administration",
    "store",
    "connect",
    "address",
    "schema",
    "steps",
    "engine",
    "options",
    "guards",
    "table",
    "item",
    "service_time",
    "error",
];

/// Of `idempotent-client`.
pub(crate) const CLIENT: &[&str] = &[
    "guide",
    "lookup",
    "resume",
    "request",
    "idempotency",
    "middleware",
    "marker",
    "operation",
    "settings",
    "specification",
    "pending",
    "verdict",
    "proof",
    "redirects",
    "received",
    "retries",
    "error",
    "key",
    "clock",
];

/// Of `idempotent-cli`.
pub(crate) const CLI: &[&str] =
    &["commands", "select", "ask", "session", "report", "failure", "text", "args"];

/// Of `idempotent-console`.
pub(crate) const CONSOLE: &[&str] = &[
    "console",
    "gate",
    "api",
    "pages",
    "bulk",
    "decisions",
    "records",
    "failure",
    "layout",
    "tables",
    "visit",
    "parts",
    "counts",
    "access",
];

/// Of `idempotent-test`.
pub(crate) const TEST: &[&str] = &[
    "fixtures",
    "proof",
    "service",
    "failure",
    "suspension",
    "process",
    "observation",
    "request",
    "response",
    "tap",
];

/// Of `idempotent-actix`.
pub(crate) const ACTIX: &[&str] = &[
    "__private",
    "guide",
    "internals",
    "job",
    "completer",
    "finish",
    "run",
    "request",
    "specification",
    "scope",
    "tx",
    "operation",
    "openapi",
    "lookup",
    "unsupported",
    "resources",
    "shutdown",
    "handle_of_request",
    "served",
    "not_run",
    "builder",
    "idempotency",
    "operation_name",
    "observation",
    "metrics",
    "settings",
    "dialect",
    "traces",
    "in_flight",
    "recording",
    "chunks",
    "problem",
    "outcome",
    "policy",
    "declaration",
    "key_source",
    "store",
    "fingerprint",
];

/// Of `idempotent-macros`.
pub(crate) const MACROS: &[&str] = &["expand", "validate", "model", "parse", "errors"];
