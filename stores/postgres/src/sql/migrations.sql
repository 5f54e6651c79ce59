-- Creates the store's list of applied migrations; sqlx's own list belongs to the application.
CREATE TABLE IF NOT EXISTS {schema}"{table}_migrations" (
    version         bigint NOT NULL PRIMARY KEY,
    compatible_from bigint NOT NULL, -- the oldest version whose releases may go on using the table
    applied_at      bigint NOT NULL
);
