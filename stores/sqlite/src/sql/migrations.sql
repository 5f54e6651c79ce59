-- Creates the store's list of applied migrations; sqlx's own list belongs to the application.
CREATE TABLE IF NOT EXISTS main."{table}_migrations" (
    version         INTEGER NOT NULL PRIMARY KEY,
    compatible_from INTEGER NOT NULL, -- the oldest version whose releases may go on using the table
    applied_at      INTEGER NOT NULL
) STRICT;
