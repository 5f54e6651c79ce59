-- Reads the time, the version of SQLite, and how much of the file is free. Returns one row.
SELECT {now} AS now, sqlite_version() AS version,
       (SELECT page_size FROM main.pragma_page_size) AS page_size,
       (SELECT page_count FROM main.pragma_page_count) AS pages,
       (SELECT freelist_count FROM main.pragma_freelist_count) AS free_pages
