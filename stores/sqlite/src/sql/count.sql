-- Counts the records: those that are watched exactly, and all of them if they are at most 100,000;
-- beyond that, `records` is estimated from those whose ids begin with a zero byte, because ids are
-- hashes. Returns one row.
WITH counted AS MATERIALIZED (
    SELECT count(*) AS records FROM (SELECT 1 FROM main."{table}" LIMIT 100001)
)
SELECT CASE WHEN (SELECT records FROM counted) <= 100000 THEN (SELECT records FROM counted)
           ELSE (SELECT 256 * count(*) FROM main."{table}" WHERE id < x'01') END AS records,
       (SELECT records FROM counted) <= 100000 AS is_exact,
       count(*) AS watched,
       count(*) FILTER (WHERE r.held) AS held,
       min(r.first_seen) FILTER (WHERE r.held) AS oldest_held,
       {now} AS at
FROM (
    SELECT first_seen,
           state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}) AS held
    FROM main."{table}"
    WHERE watch IS NOT NULL -- as in the index
) AS r
