-- Precedes every script: the encoding of a record, and when its key expires.
-- KEYS: 1 the record's key
--
-- A value is a header of 91 bytes and, once completed, the recording. The header consists of
-- version, state (1 in flight, 2 completed, 3 held), abandoned policy (0 retry, 1 hold), attempt,
-- owner, fingerprint, lease_until (0 once abandoned), first_seen, expires_at, and the length of
-- the lease. Times are milliseconds since the Unix epoch.
--
-- A first_seen of 0 means that the claimer, who does not know the server's time, has written
-- times that are relative to the creation of the key. The creation follows from the key's expiry:
-- its ttl once the record is completed, and GRACE after its ttl while it is in flight.
local HEAD, LAYOUT = 91, '>BBBI4c16c36I8I8I8I8'
local IN_FLIGHT, COMPLETED, HELD, RETRY, HOLD = 1, 2, 3, 0, 1
-- How long a claim is kept for its late owner after its lease and its ttl have expired, in ms.
local GRACE = 3600000

local function time()
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function read()
    local head = redis.call('GETRANGE', KEYS[1], 0, HEAD - 1)
    if head == '' then
        return nil
    end
    local version, state, abandoned = head:byte(1, 3)
    if #head ~= HEAD or version ~= 1 or state < 1 or state > 3 or abandoned > 1 then
        error({ err = 'DAMAGED the record cannot be read' })
    end
    local r, _ = { state = state, abandoned = abandoned }
    _, _, _, r.attempt, r.owner, r.fingerprint, r.lease_until, r.first_seen, r.expires_at, r.lease =
        struct.unpack(LAYOUT, head)
    return r
end

-- Converts the relative times of a record that is not completed to the server's clock.
local function to_absolute_times(r)
    if r.first_seen == 0 then
        local created = redis.call('PEXPIRETIME', KEYS[1]) - GRACE - r.expires_at
        r.first_seen, r.expires_at, r.lease_until =
            created, created + r.expires_at, created + r.lease_until
    end
    return r
end

local function lease_expired(r, now)
    return r.lease_until <= now
end

-- Limits a lease to its length from now, which only a clock that was set back exceeds. Returns
-- whether it changed the record.
local function shorten_lease(r, now)
    if r.state == IN_FLIGHT and r.lease_until > now + r.lease then
        r.lease_until = now + r.lease
        return true
    end
    return false
end

-- A recording expires with its key, so it needs no test here.
local function expired(r, now)
    return r.state == IN_FLIGHT and r.abandoned == RETRY and r.expires_at <= now
        and lease_expired(r, now)
end

-- Sets the expiry of the key: the ttl of a recording; GRACE after lease and ttl of a claim under
-- `retry`; none for a key that is held or can become so.
local function write(r, recording)
    local value = struct.pack(LAYOUT, 1, r.state, r.abandoned, r.attempt, r.owner, r.fingerprint,
        r.lease_until, r.first_seen, r.expires_at, r.lease)
    if r.state == COMPLETED then
        redis.call('SET', KEYS[1], value .. recording, 'PXAT', r.expires_at)
    elseif r.state == IN_FLIGHT and r.abandoned == RETRY then
        redis.call('SET', KEYS[1], value, 'PXAT', math.max(r.expires_at, r.lease_until) + GRACE)
    else
        redis.call('SET', KEYS[1], value)
    end
end

-- Writes the record unchanged. Since Redis 7.2, WAIT covers only the writes of its own connection.
local function write_again()
    redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]), 'KEEPTTL')
end

-- A recording that is stored after the ttl has expired is kept for the same ttl again.
local function complete(r, recording, now)
    if r.expires_at <= now then
        r.expires_at = now + r.expires_at - r.first_seen
    end
    r.state = COMPLETED
    write(r, recording)
end
