-- Every request has one of the keys that were completed before the run.
local head = {["content-type"] = "application/json", ["authorization"] = "Bearer alice"}
local body, count = os.getenv("BODY"), tonumber(os.getenv("KEYS"))
local requests = {}

function init()
  for number = 1, count do
    head["idempotency-key"] = string.format("00000000-0000-4000-8000-%012x", number)
    requests[number] = wrk.format("POST", "/work", head, body)
  end
end

function request()
  return requests[math.random(1, count)]
end
