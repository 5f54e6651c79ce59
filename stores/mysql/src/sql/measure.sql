-- Reads the time, the version of the server, and the sizes of the table, its indexes and the log as
-- the server has estimated them. Returns one row.
SELECT {now} AS now,
       VERSION() AS version,
       CAST(COALESCE(SUM(IF(t.table_name = '{table}', t.data_length, 0)), 0) AS SIGNED)
           AS table_bytes,
       CAST(COALESCE(SUM(IF(t.table_name = '{table}', t.index_length, 0)), 0) AS SIGNED)
           AS index_bytes,
       CAST(COALESCE(SUM(IF(t.table_name = '{table}', 0, t.data_length)), 0) AS SIGNED)
           AS log_bytes,
       CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS SIGNED) AS flush
FROM information_schema.tables AS t
WHERE t.table_schema = '{quoted_schema}'
  AND t.table_name IN ('{table}', '{table}_audit')
