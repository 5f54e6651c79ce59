-- The same for every record whose ttl is over, for the purge.
UPDATE main."{table}"
SET lease_until = {now} + lease
WHERE expires_at <= {now}
  AND state = 1
  AND lease_until > {now} + lease
