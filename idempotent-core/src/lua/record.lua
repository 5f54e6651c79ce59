-- What stands before every step: how a record is packed, and when its key expires. KEYS[1] is the record's key.
--
-- A packed record is a head of 91 bytes and, once completed, the recording. The head is: version, state (1 in flight, 2 completed,
-- 3 held), abandoned (0 retry, 1 hold), attempt, owner, fingerprint, lease_until (0 once abandoned), first_seen,
-- expires_at, the length of the lease; times are milliseconds since the epoch. A first_seen of 0 says that it was the claimer, who knows no server's time, that wrote them: they count from the
-- creation of the key, which expires with its ttl once it is completed, and GRACE after that while it is in flight.
local HEAD, LAYOUT = 91, '>BBBI4c16c36I8I8I8I8'
local IN_FLIGHT, COMPLETED, HELD, RETRY, HOLD = 1, 2, 3, 0, 1
-- How long a claim whose lease and ttl are over is kept for its late owner, in ms.
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
    _, _, _, r.attempt, r.owner, r.fingerprint, r.lease_until, r.first_seen, r.expires_at, r.lease = struct.unpack(LAYOUT, head)
    return r
end

-- Makes the times of a record that is not completed those of the server, where they count from the key's creation.
local function settle(r)
    if r.first_seen == 0 then
        local created = redis.call('PEXPIRETIME', KEYS[1]) - GRACE - r.expires_at
        r.first_seen, r.expires_at, r.lease_until = created, created + r.expires_at, created + r.lease_until
    end
    return r
end

local function lapsed(r, now)
    return r.lease_until <= now
end

-- Ends a lease no later than it would if it began now: only a clock that was set back lets it last longer. Whether it did.
local function shorten(r, now)
    if r.state == IN_FLIGHT and r.lease_until > now + r.lease then
        r.lease_until = now + r.lease
        return true
    end
    return false
end

-- An answer expires with its key, which is why it needs no test here.
local function expired(r, now)
    return r.state == IN_FLIGHT and r.abandoned == RETRY and r.expires_at <= now and lapsed(r, now)
end

-- An answer is gone when it expires. What is at work under `retry` is gone GRACE after both its lease and its ttl. What is held,
-- or could come to be, never goes.
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

-- Writes what is there already. From Redis 7.2 on, WAIT waits for what its own connection has written last, and for nothing that another
-- connection wrote before.
local function write_again()
    redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]), 'KEEPTTL')
end

-- An answer that comes when the ttl is over is kept for as long again.
local function complete(r, recording, now)
    if r.expires_at <= now then
        r.expires_at = now + r.expires_at - r.first_seen
    end
    r.state = COMPLETED
    write(r, recording)
end
