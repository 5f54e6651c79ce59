-- Finds every record with the policy "retry" whose ttl has expired and whose lease is longer than
-- its length, and locks it; skips those that another transaction has locked. The leases are
-- limited then, in the same transaction.
-- ?1 the time
SELECT id
FROM {schema}`{table}`
WHERE kept = 0
  AND expires_at <= ?1
  AND state = 1
  AND abandoned = 0
  AND lease_until > ?1 + lease
FOR UPDATE SKIP LOCKED
