-- Verifies the table: its engine, the constraint on which every claim depends, and columns that the
-- statements would lack or leave empty. Returns one row; the lists are separated by commas.
SELECT (SELECT t.engine FROM information_schema.tables AS t
        WHERE t.table_schema = '{quoted_schema}' AND t.table_name = '{table}') AS engine,
       (SELECT t.engine FROM information_schema.tables AS t
        WHERE t.table_schema = '{quoted_schema}' AND t.table_name = '{table}_audit') AS log_engine,
       EXISTS (
           SELECT i.index_name
           FROM information_schema.statistics AS i
           WHERE i.table_schema = '{quoted_schema}' AND i.table_name = '{table}'
             AND i.non_unique = 0 AND i.sub_part IS NULL
           GROUP BY i.index_name
           HAVING MAX(i.seq_in_index) = 1 AND MAX(i.column_name) = 'id'
       ) AS keyed,
       COALESCE((
           SELECT GROUP_CONCAT(c.column_name ORDER BY c.ordinal_position SEPARATOR ', ')
           FROM information_schema.columns AS c
           WHERE c.table_schema = '{quoted_schema}' AND c.table_name = '{table}'
             AND c.is_nullable = 'NO' AND c.column_default IS NULL
             AND c.extra NOT LIKE '%auto_increment%' AND c.extra NOT LIKE '%GENERATED%'
             AND c.column_name NOT IN ({columns})
       ), '') AS unfilled,
       COALESCE((
           SELECT GROUP_CONCAT(c.column_name SEPARATOR ', ')
           FROM information_schema.columns AS c
           WHERE c.table_schema = '{quoted_schema}' AND c.table_name = '{table}'
       ), '') AS present,
       COALESCE((
           SELECT GROUP_CONCAT(c.column_name ORDER BY c.ordinal_position SEPARATOR ', ')
           FROM information_schema.columns AS c
           WHERE c.table_schema = '{quoted_schema}' AND c.table_name = '{table}_audit'
             AND c.is_nullable = 'NO' AND c.column_default IS NULL
             AND c.extra NOT LIKE '%auto_increment%' AND c.extra NOT LIKE '%GENERATED%'
             AND c.column_name NOT IN ({audit})
       ), '') AS log_unfilled,
       (
           SELECT GROUP_CONCAT(c.column_name SEPARATOR ', ')
           FROM information_schema.columns AS c
           WHERE c.table_schema = '{quoted_schema}' AND c.table_name = '{table}_audit'
       ) AS log_present -- NULL: there is no log
