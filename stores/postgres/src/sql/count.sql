-- Counts the records: those that are watched exactly, and all of them as estimated when the server
-- last analyzed the table or its partitions. Returns one row.
SELECT (
           SELECT coalesce(sum(greatest(c.reltuples, 0)::float8), 0)::bigint
           FROM pg_class AS c
           WHERE c.relkind = 'r'
             AND (c.oid = '{quoted_schema}"{table}"'::regclass
                  OR c.oid IN (SELECT inhrelid FROM pg_inherits
                               WHERE inhparent = '{quoted_schema}"{table}"'::regclass))
       ) AS records,
       0::bigint AS is_exact,
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
