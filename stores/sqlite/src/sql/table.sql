-- Verifies the table: the constraint on which every claim depends, and columns that the statements
-- would lack or leave empty. Returns one row; the lists are separated by commas.
SELECT EXISTS (
           SELECT 1
           FROM main.pragma_index_list('{table}', 'main') AS i
           WHERE i."unique" = 1 AND i.partial = 0
             AND (SELECT group_concat(name) FROM main.pragma_index_info(i.name, 'main')) = 'id'
       ) AS keyed,
       (SELECT coalesce(group_concat(name, ', '), '')
        FROM main.pragma_table_info('{table}', 'main')
        WHERE "notnull" = 1 AND dflt_value IS NULL AND name NOT IN ({columns})) AS unfilled,
       (SELECT coalesce(group_concat(value, ', '), '')
        FROM main.json_each(json_array({columns}))
        WHERE value NOT IN (SELECT name FROM main.pragma_table_info('{table}', 'main'))) AS lacking,
       CASE WHEN EXISTS (SELECT 1 FROM main.pragma_table_info('{table}_audit', 'main')) THEN (
           SELECT coalesce(group_concat(value, ', '), '')
           FROM main.json_each(json_array({audit}))
           WHERE value NOT IN (SELECT name FROM main.pragma_table_info('{table}_audit', 'main'))
       ) END AS log_lacking, -- NULL: there is no log
       (SELECT coalesce(group_concat(name, ', '), '')
        FROM main.pragma_table_info('{table}_audit', 'main')
        WHERE "notnull" = 1 AND dflt_value IS NULL AND name NOT IN ({audit})) AS log_unfilled,
       EXISTS (SELECT 1 FROM main.pragma_table_info('{table}', 'main')) AS present
