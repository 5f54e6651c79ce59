-- Reads the version and the settings on which safety depends. Returns one row.
SELECT VERSION() AS version,
       CAST(@@GLOBAL.read_only AS CHAR) AS read_only,
       CAST(@@GLOBAL.innodb_read_only AS CHAR) AS innodb_read_only,
       CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR) AS flush,
       CAST(@@GLOBAL.max_allowed_packet AS SIGNED) AS packet,
       DATABASE() AS `database`
