-- Makes a new table about forty pages long, which later vacuums preserve. A plan that is made while
-- the table has hardly a page reads all of it, and stays in use however fast the table grows, until
-- the server analyzes it again.
INSERT INTO {schema}"{table}"
    (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, abandoned,
     recording)
SELECT sha256(n::text::bytea), '', '', 1, 0, 0, 0, 0, 2, 0, convert_to(repeat(' ', 1800), 'UTF8')
FROM generate_series(1, 128 * {parts}) AS n;
DELETE FROM {schema}"{table}" WHERE first_seen = 0;
