-- The script for wrk: each client of a closed loop sends the bodies of a file in rotation and times
-- its responses. wrk runs one thread per client, so that a script can match responses to requests:
-- the percentiles reported by wrk are corrected for coordinated omission.
-- Arguments: a file with a Lua table of bodies; their content type.

local ffi = require("ffi")
ffi.cdef([[
  typedef struct { long seconds; long nanoseconds; } moment;
  int clock_gettime(int clock, moment *now);
]])

local MONOTONIC, STRIDE = 1, 37
local threads, moment = {}, ffi.new("moment")
local bodies, position, sent

local function now()
  ffi.C.clock_gettime(MONOTONIC, moment)
  return tonumber(moment.seconds) * 1e6 + tonumber(moment.nanoseconds) / 1e3
end

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(arguments)
  bodies = dofile(arguments[1])
  wrk.method = "POST"
  wrk.headers["Content-Type"] = arguments[2]
  position, taken = (number or 0) * STRIDE, {}
end

function request()
  position = position + 1
  sent = now()
  return wrk.format(nil, nil, nil, bodies[position % #bodies + 1])
end

-- Only successful responses count, so that fast errors do not count as throughput.
function response(status)
  ended = now()
  -- Not in request(), which wrk also calls once before it sends anything.
  began = began or sent
  if status < 400 then
    table.insert(taken, math.floor(ended - sent))
  end
end

function done(summary)
  local all, first, last = {}, math.huge, 0
  for _, thread in ipairs(threads) do
    first = math.min(first, thread:get("began") or math.huge)
    last = math.max(last, thread:get("ended") or 0)
    for _, microseconds in ipairs(thread:get("taken")) do
      table.insert(all, microseconds)
    end
  end
  local errors = {}
  for _, kind in ipairs({ "connect", "read", "write", "status", "timeout" }) do
    table.insert(errors, string.format('"%s": %d', kind, summary.errors[kind]))
  end
  print(string.format(
    '{"seconds": %.6f, "errors": {%s}, "microseconds": [%s]}',
    math.max(last - first, 0) / 1e6, table.concat(errors, ", "), table.concat(all, ", ")
  ))
end
