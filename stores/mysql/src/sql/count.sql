-- Counts the records: those that are watched exactly, and all of them if they are at most 10,000.
-- Beyond that, `records` is estimated from those whose ids begin with a zero byte, because ids are
-- hashes. Returns one row.
SELECT CASE WHEN counted.records <= 10000 THEN counted.records
           ELSE (SELECT 256 * COUNT(*) FROM {schema}`{table}` WHERE id < X'01') END AS records,
       IF(counted.records <= 10000, 1, 0) AS is_exact,
       CAST(COUNT(r.first_seen) AS SIGNED) AS watched,
       CAST(COALESCE(SUM(r.held), 0) AS SIGNED) AS held,
       CAST(MIN(IF(r.held, r.first_seen, NULL)) AS SIGNED) AS oldest_held,
       {now} AS at
FROM (
    SELECT COUNT(*) AS records FROM (SELECT 1 FROM {schema}`{table}` LIMIT 10001) AS few
) AS counted
LEFT JOIN (
    SELECT first_seen,
           state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}) AS held
    FROM {schema}`{table}`
    WHERE watch IS NOT NULL
) AS r ON true
GROUP BY counted.records
