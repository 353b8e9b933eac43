-- The script for wrk: each client of a closed loop sends the bodies of a file in rotation and times
-- its responses, as the percentiles reported by wrk are corrected for coordinated omission. wrk runs
-- one thread per client, which asks for the next request when the last response has come. A function
-- response() would get a table of the headers and a copy of the body, which take time of the cores.
-- Arguments: a file with a Lua table of bodies; their content type.

local ffi = require("ffi")
ffi.cdef([[
  typedef struct { long seconds; long nanoseconds; } moment;
  int clock_gettime(int clock, moment *now);
]])

local MONOTONIC, STRIDE = 1, 37
local threads, moment = {}, ffi.new("moment")
local requests, position, sent, skipped

local function now()
  ffi.C.clock_gettime(MONOTONIC, moment)
  return tonumber(moment.seconds) * 1e6 + tonumber(moment.nanoseconds) / 1e3
end

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(arguments)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = arguments[2]
  requests, taken = {}, {}
  for place, body in ipairs(dofile(arguments[1])) do
    requests[place] = wrk.format(nil, nil, nil, body)
  end
  position = (number or 0) * STRIDE
  -- wrk also calls request() once before it sends anything, in the first thread.
  skipped = number == 0 and 1 or 0
end

function request()
  position = position + 1
  local time = now()
  if skipped > 0 then
    skipped = skipped - 1
  elseif began then
    ended = time
    table.insert(taken, math.floor(ended - sent))
  else
    began = time
  end
  sent = time
  return requests[position % #requests + 1]
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
    '{"seconds": %.6f, "microseconds": [%s], "responses": %d, "errors": {%s}}',
    math.max(last - first, 0) / 1e6, table.concat(all, ", "),
    summary.requests - summary.errors.status, table.concat(errors, ", ")
  ))
end
