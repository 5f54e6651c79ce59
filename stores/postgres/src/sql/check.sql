-- Reads the settings on which safety depends. Returns one row.
SELECT current_setting('server_version_num')::bigint AS version,
       pg_is_in_recovery() AS standby,
       current_setting('default_transaction_read_only') = 'on' AS read_only,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('bytea_output') = 'hex' AS hex_output,
       current_setting('transaction_timeout', true) IS NOT NULL AS bounds_transactions
