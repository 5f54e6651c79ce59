-- Limits the lease, as shorten.sql does, of every record with the policy "retry" whose ttl has
-- expired.
-- Guard: in flight, policy "retry", lease longer than its length.
UPDATE main."{table}"
SET lease_until = {now} + lease
WHERE kept = 0 -- as in purge.sql
  AND expires_at <= {now}
  AND state = 1
  AND abandoned = 0
  AND lease_until > {now} + lease
