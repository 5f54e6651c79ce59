-- The list of the migrations that were applied; sqlx's own list belongs to the application.
CREATE TABLE IF NOT EXISTS {schema}"{table}_migrations" (
    version    bigint NOT NULL PRIMARY KEY,
    applied_at bigint NOT NULL
);
