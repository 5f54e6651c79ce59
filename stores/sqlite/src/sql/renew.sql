-- Renews many leases. Returns a row for each renewed one.
-- Guard: the record is in flight and owned by the caller.
-- ?1 JSON array of [id in hex, owner in hex, lease in ms]
UPDATE main."{table}" AS r
SET lease = lease.ms, lease_until = {now} + lease.ms, watch = r.first_seen
FROM (
    SELECT unhex(value ->> 0) AS id, unhex(value ->> 1) AS owner, value ->> 2 AS ms
    FROM main.json_each(?1)
) AS lease
WHERE r.id = lease.id
  AND r.owner = lease.owner
  AND r.state = 1
RETURNING id, owner
