-- Verifies the table: the constraint on which every claim depends, and columns that the statements
-- would lack or leave empty. Returns one row.
SELECT EXISTS (
           SELECT
           FROM pg_index AS i
           JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
           WHERE i.indrelid = c.oid
             AND i.indisunique AND i.indisvalid AND i.indimmediate
             AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname = 'id'
       ) AS keyed,
       ARRAY(
           SELECT a.attname::text
           FROM pg_attribute AS a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
             AND a.attname <> ALL ({columns})
           ORDER BY a.attnum
       ) AS unfilled,
       ARRAY(
           SELECT name
           FROM unnest({columns}) AS name
           WHERE NOT EXISTS (
               SELECT FROM pg_attribute AS a
               WHERE a.attrelid = c.oid AND a.attname = name AND NOT a.attisdropped
           )
       ) AS lacking,
       CASE WHEN log.id IS NOT NULL THEN ARRAY(
           SELECT name
           FROM unnest({audit}) AS name
           WHERE NOT EXISTS (
               SELECT FROM pg_attribute AS a
               WHERE a.attrelid = log.id AND a.attname = name AND NOT a.attisdropped
           )
       ) END AS log_lacking, -- NULL: there is no log
       ARRAY(
           SELECT a.attname::text
           FROM pg_attribute AS a
           WHERE a.attrelid = log.id AND a.attnum > 0 AND NOT a.attisdropped
             AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
             AND a.attname <> ALL ({audit})
           ORDER BY a.attnum
       ) AS log_unfilled
FROM pg_class AS c
CROSS JOIN (SELECT to_regclass('{quoted_schema}"{table}_audit"')::oid AS id) AS log
WHERE c.oid = '{quoted_schema}"{table}"'::regclass
