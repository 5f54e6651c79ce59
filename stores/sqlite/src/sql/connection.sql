-- Reads every setting of the connection that a handler can change within a transaction and that
-- outlives it, and the number of rows that the last write changed. Returns one row.
SELECT changes() AS changed,
       concat_ws(' ',
           (SELECT query_only FROM main.pragma_query_only),
           (SELECT ignore_check_constraints FROM main.pragma_ignore_check_constraints),
           (SELECT writable_schema FROM main.pragma_writable_schema),
           (SELECT locking_mode FROM main.pragma_locking_mode),
           (SELECT max_page_count FROM main.pragma_max_page_count),
           (SELECT timeout FROM main.pragma_busy_timeout),
           (SELECT count(nullif(name, 'temp')) FROM main.pragma_database_list),
           (SELECT count(*) FROM sqlite_temp_schema)) AS settings
