-- Limits the lease, as shorten.sql does, of every record whose ttl has expired.
-- Guard: in flight, lease longer than its length.
UPDATE main."{table}"
SET lease_until = {now} + lease
WHERE expires_at <= {now}
  AND state = 1
  AND lease_until > {now} + lease
