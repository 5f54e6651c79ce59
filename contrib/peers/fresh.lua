-- Every request has a key that no other request of the run has, in the form of a UUID.
local next, head = 0, {["content-type"] = "application/json", ["authorization"] = "Bearer alice"}
local body = os.getenv("BODY")
math.randomseed(tonumber(os.getenv("SEED")))

function request()
  next = next + 1
  head["idempotency-key"] = string.format(
    "%04x%04x-%04x-4000-8000-%012x", math.random(0, 65535), math.random(0, 65535), math.random(0, 65535), next)
  return wrk.format("POST", "/work", head, body)
end
