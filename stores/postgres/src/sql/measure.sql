-- Reads the time, the version of the server, the sizes of the table, its indexes and the log, and
-- how many dead rows vacuums have left. Returns one row.
WITH parts AS MATERIALIZED (
    SELECT c.oid
    FROM pg_class AS c
    WHERE c.relkind = 'r'
      AND (c.oid = '{quoted_schema}"{table}"'::regclass
           OR c.oid IN (SELECT inhrelid FROM pg_inherits
                        WHERE inhparent = '{quoted_schema}"{table}"'::regclass))
)
SELECT {now} AS now,
       current_setting('server_version') AS version,
       (SELECT coalesce(sum(pg_table_size(p.oid)), 0)::bigint FROM parts AS p) AS table_bytes,
       (SELECT coalesce(sum(pg_indexes_size(p.oid)), 0)::bigint FROM parts AS p) AS index_bytes,
       pg_total_relation_size('{quoted_schema}"{table}_audit"'::regclass) AS log_bytes,
       (SELECT coalesce(sum(pg_stat_get_live_tuples(p.oid)), 0)::bigint FROM parts AS p) AS live,
       (SELECT coalesce(sum(pg_stat_get_dead_tuples(p.oid)), 0)::bigint FROM parts AS p) AS dead,
       (current_setting('autovacuum') = 'on')::int::bigint AS autovacuum,
       (current_setting('fsync') = 'on')::int::bigint AS fsync
