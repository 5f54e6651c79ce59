-- Creates the store's list of applied migrations; sqlx's own list belongs to the application.
CREATE TABLE IF NOT EXISTS {schema}`{table}_migrations` (
    version         BIGINT NOT NULL PRIMARY KEY,
    compatible_from BIGINT NOT NULL, -- the oldest version whose releases may go on using the table
    applied_at      BIGINT NOT NULL
) ENGINE = InnoDB
