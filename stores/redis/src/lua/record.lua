-- Precedes every script: the encoding of a record, and when its key expires.
-- KEYS: 1 the record's key: a prefix and the 32 bytes of the record's id; 2 the watch list of the
-- key's slot, or nothing; 3 the log of operators' decisions of the slot, if the script adds to it
--
-- A value is a header of 114 bytes, its texts and, once completed, the recording. The header
-- consists of version, state (1 in flight, 2 completed, 3 held), abandoned policy (0 retry, 1
-- hold), attempt, owner, fingerprint, lease_until (0 once abandoned), first_seen, expires_at, the
-- length of the lease, completed_at (0 unless completed), status (0 for none), and the lengths of
-- the texts. Times are milliseconds since the Unix epoch.
--
-- A first_seen of 0 means that the claimer, who does not know the server's time, has written
-- times that are relative to the creation of the key. The creation follows from the key's expiry:
-- its ttl once the record is completed, and GRACE after its ttl while it is in flight. The
-- completed_at of such a record is the time that was left until its expiry. Its history is empty,
-- and follows from its times; no other record has an empty history.
local HEAD, LAYOUT = 114, '>BBBI4c16c36I8I8I8I8I8I2BBBBBI4I4'
local TEXTS = { 'operation', 'principal', 'reference', 'progress', 'history', 'steps', 'input' }
local IN_FLIGHT, COMPLETED, HELD, RETRY, HOLD = 1, 2, 3, 0, 1
-- How long a claim is kept for its late owner after its lease and its ttl have expired, in ms.
local GRACE = 3600000

local function time()
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function damaged()
    error({ err = 'DAMAGED the record cannot be read' })
end

local function read()
    local head = redis.call('GETRANGE', KEYS[1], 0, HEAD - 1)
    if head == '' then
        return nil
    end
    local version, state, abandoned = head:byte(1, 3)
    if #head ~= HEAD or version ~= 1 or state < 1 or state > 3 or abandoned > 1 then
        damaged()
    end
    local r, lengths, _ = { state = state, abandoned = abandoned, size = HEAD }, {}
    _, _, _, r.attempt, r.owner, r.fingerprint, r.lease_until, r.first_seen, r.expires_at, r.lease,
        r.completed_at, r.status, lengths[1], lengths[2], lengths[3], lengths[4], lengths[5],
        lengths[6], lengths[7] = struct.unpack(LAYOUT, head)
    for _, length in ipairs(lengths) do
        r.size = r.size + length
    end
    -- Only a recording follows the texts.
    local last = -1
    if state == COMPLETED then
        last = r.size - 1
    end
    local texts, at = redis.call('GETRANGE', KEYS[1], HEAD, last), 1
    if #texts ~= r.size - HEAD then
        damaged()
    end
    for i, name in ipairs(TEXTS) do
        r[name] = texts:sub(at, at + lengths[i] - 1)
        at = at + lengths[i]
    end
    return r
end

-- Appends an entry to the record's history, of which the latest 16 are kept.
local function append_history(r, letter, at)
    r.history = (r.history .. letter .. string.format('%011x', at)):sub(-192)
end

-- Converts the relative times of a record to the server's clock.
local function to_absolute_times(r)
    if r.first_seen == 0 then
        local expires_at = redis.call('PEXPIRETIME', KEYS[1])
        if r.state == IN_FLIGHT then
            expires_at = expires_at - GRACE
        end
        local created = expires_at - r.expires_at
        r.first_seen, r.expires_at, r.lease_until = created, expires_at, created + r.lease_until
        append_history(r, 'c', created)
        if r.state == COMPLETED then
            r.completed_at = expires_at - r.completed_at
            append_history(r, 'd', r.completed_at)
        end
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

-- What precedes the recording in the value of a record.
local function encode(r)
    return struct.pack(LAYOUT, 1, r.state, r.abandoned, r.attempt, r.owner, r.fingerprint,
        r.lease_until, r.first_seen, r.expires_at, r.lease, r.completed_at, r.status, #r.operation,
        #r.principal, #r.reference, #r.progress, #r.history, #r.steps, #r.input)
        .. r.operation .. r.principal .. r.reference .. r.progress .. r.history .. r.steps
        .. r.input
end

-- Sets the expiry of the key: the ttl of a recording; GRACE after lease and ttl of a claim under
-- `retry`; none for a key that is held or can become so.
local function write(r, recording)
    local value = encode(r)
    if r.state == COMPLETED then
        redis.call('SET', KEYS[1], value .. recording, 'PXAT', r.expires_at)
    elseif r.state == IN_FLIGHT and r.abandoned == RETRY then
        redis.call('SET', KEYS[1], value, 'PXAT', math.max(r.expires_at, r.lease_until) + GRACE)
    else
        redis.call('SET', KEYS[1], value)
    end
end

-- The bytes after the texts: the recording of a completed record.
local function recording_of(r)
    return redis.call('GETRANGE', KEYS[1], r.size, -1)
end

-- Adds the record to the watch list: the ids of records that may need an operator, by first_seen.
local function watch(r)
    if KEYS[2] then
        redis.call('ZADD', KEYS[2], r.first_seen, KEYS[1]:sub(-32))
    end
end

local function unwatch()
    if KEYS[2] then
        redis.call('ZREM', KEYS[2], KEYS[1]:sub(-32))
    end
end

-- The state of a record, as the log of operators' decisions has it.
local function state_of(r, now)
    if r.state == COMPLETED then
        return ('completed ' .. r.status):gsub(' 0$', '')
    elseif r.state == HELD or (r.abandoned == HOLD and lease_expired(r, now)) then
        return 'held'
    end
    return 'in flight'
end

-- Adds an entry to the log of operators' decisions: the state of the record, and the arguments from
-- this one on, which are names and values.
local function log_from(first, r, now)
    redis.call('XADD', KEYS[3], '*', 'before', state_of(r, now), unpack(ARGV, first))
end

-- Writes the record unchanged. Since Redis 7.2, WAIT covers only the writes of its own connection.
local function write_again()
    redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]), 'KEEPTTL')
end

-- Of the handler's notes only the reference stays. A recording that is stored after the ttl has
-- expired is kept for the same ttl again. The letter is that of the entry in the history.
local function complete(r, recording, status, now, letter)
    if r.expires_at <= now then
        r.expires_at = now + r.expires_at - r.first_seen
    end
    r.state, r.completed_at, r.status = COMPLETED, now, status
    r.progress, r.steps, r.input = '', '', ''
    append_history(r, letter, now)
    write(r, recording)
    unwatch()
end

-- What a step of the owner returns: 2 if the record had an input.
local function passed(r)
    return math.min(#r.input, 1) + 1
end
