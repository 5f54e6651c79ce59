-- The list of the migrations that were applied; sqlx's own list belongs to the application.
CREATE TABLE IF NOT EXISTS "{table}_migrations" (
    version    INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT;
