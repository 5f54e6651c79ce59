-- Counts the records: those that are watched exactly, and all of them if they are at most 10,000.
-- Beyond that, `records` is what the server estimated when it last analyzed the table or its
-- partitions; until then it is estimated from the records whose ids begin with a zero byte, because
-- ids are hashes. Returns one row.
WITH counted AS MATERIALIZED (
    SELECT count(*) AS records FROM (SELECT FROM {schema}"{table}" LIMIT 10001) AS few
), analyzed AS MATERIALIZED (
    SELECT sum(c.reltuples::float8)::bigint AS records, min(c.reltuples) > 0 AS is_known
    FROM pg_class AS c
    WHERE c.relkind = 'r'
      AND (c.oid = '{quoted_schema}"{table}"'::regclass
           OR c.oid IN (SELECT inhrelid FROM pg_inherits
                        WHERE inhparent = '{quoted_schema}"{table}"'::regclass))
)
SELECT (
           SELECT CASE WHEN counted.records <= 10000 THEN counted.records
                      WHEN is_known THEN greatest(counted.records, analyzed.records)
                      ELSE (SELECT 256 * count(*) FROM {schema}"{table}"
                            WHERE id < decode('01', 'hex')) END
           FROM counted CROSS JOIN analyzed
       ) AS records,
       (SELECT CASE WHEN records <= 10000 THEN 1 ELSE 0 END FROM counted)::bigint AS is_exact,
       count(*) AS watched,
       count(*) FILTER (WHERE r.held) AS held,
       min(r.first_seen) FILTER (WHERE r.held) AS oldest_held,
       {now} AS at
FROM (
    SELECT first_seen,
           state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}) AS held
    FROM {schema}"{table}"
    WHERE watch IS NOT NULL -- as in the index
) AS r
