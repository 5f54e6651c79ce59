-- Returns the privileges that the role lacks on the table and on the log of operators' decisions:
-- one row, or none if there is no such table. It also searches schemas that the role may not use,
-- which the server would skip silently.
WITH searched AS MATERIALIZED (
    SELECT name, place
    FROM unnest({searched}) WITH ORDINALITY AS schemas (name, place)
)
SELECT current_user::text AS role,
       n.nspname::text AS schema,
       has_schema_privilege(n.oid, 'USAGE') AS usable,
       ARRAY(
           SELECT privilege
           FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
           WHERE NOT has_table_privilege(c.oid, privilege)
       ) AS missing,
       ARRAY(
           SELECT privilege
           FROM unnest(ARRAY['SELECT', 'INSERT']) AS privilege
           WHERE NOT has_table_privilege(log.oid, privilege)
       ) AS missing_on_log,
       row_security_active(c.oid) AS filtered,
       coalesce(row_security_active(log.oid), false) AS log_filtered
FROM searched
JOIN pg_namespace AS n ON n.nspname = searched.name
JOIN pg_class AS c ON c.relnamespace = n.oid
LEFT JOIN pg_class AS log ON log.relnamespace = n.oid AND log.relname = '{table}_audit'
WHERE c.relname = '{table}'
  AND c.relkind IN ('r', 'p')
ORDER BY usable DESC, searched.place
LIMIT 1
