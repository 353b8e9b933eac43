-- What wrk runs: each client of a closed loop sends the bodies of a file in turn and times its own
-- answers. wrk is started with one thread a client, so that a script sees which answer is whose:
-- the percentiles of wrk itself are of numbers that it has corrected for coordinated omission.
-- Arguments: the file, a Lua table of bodies; their content type.

local ffi = require("ffi")
ffi.cdef([[
  typedef struct { long seconds; long nanoseconds; } moment;
  int clock_gettime(int clock, moment *now);
]])

local MONOTONIC, STRIDE = 1, 37
local threads, moment = {}, ffi.new("moment")
local bodies, position, asked

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
  asked = now()
  return wrk.format(nil, nil, nil, bodies[position % #bodies + 1])
end

-- An error that comes fast must not look like speed: only answers count.
function response(status)
  ended = now()
  -- Not in request(): wrk calls that once to try the script, before anything is sent.
  began = began or asked
  if status < 400 then
    table.insert(taken, math.floor(ended - asked))
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
