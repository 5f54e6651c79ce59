-- Claims a key, takes it over after its lease has expired, or returns why it cannot be claimed. It
-- writes only what a full server must be able to refuse.
-- KEYS: 2 the watch list if the policy is to hold
-- ARGV: 1 fingerprint, 2 owner, 3 lease in ms, 4 ttl in ms, 5 abandoned policy (0 retry, 1 hold),
-- 6 operation, 7 principal or nothing
-- Returns {1, attempt} granted, {2, recording} completed, {3, remaining lease in ms, reference} in
-- flight, {4, 0, reference} held, {4, 1, reference} held by this call, {5, fingerprint} mismatch,
-- {6, attempt} granted again to its owner.
local fingerprint, owner = ARGV[1], ARGV[2]
local lease, ttl, abandoned = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
local now, r = time(), read()
if r and r.state == IN_FLIGHT then
    to_absolute_times(r)
end
if not r or expired(r, now) then
    r = {
        state = IN_FLIGHT, abandoned = abandoned, attempt = 1, owner = owner,
        fingerprint = fingerprint, lease = lease, lease_until = now + lease,
        first_seen = now, expires_at = now + ttl, completed_at = 0, status = 0,
        operation = ARGV[6], principal = ARGV[7],
        reference = '', progress = '', history = '', steps = '', input = '',
    }
    append_history(r, 'c', now)
    watch(r)
    write(r)
    return { 1, 1 }
end
if r.state == IN_FLIGHT and r.owner == owner then
    r.lease, r.lease_until = lease, now + lease
    write(r)
    return { 6, r.attempt }
end
if shorten_lease(r, now) then
    write(r)
end
if r.fingerprint ~= fingerprint then
    return { 5, r.fingerprint }
end
if r.state == COMPLETED then
    return { 2, recording_of(r) }
end
if r.state == HELD then
    return { 4, 0, r.reference }
end
if not lease_expired(r, now) then
    return { 3, r.lease_until - now, r.reference }
end
if r.abandoned == HOLD or abandoned == HOLD then
    r.state = HELD
    append_history(r, 'h', now)
    watch(r)
    write(r)
    return { 4, 1, r.reference }
end
r.owner, r.attempt = owner, math.min(r.attempt + 1, 4294967295)
r.lease, r.lease_until = lease, now + lease
append_history(r, 't', now)
write(r)
return { 1, r.attempt }
