-- wrk's side of scripts/bench-server and scripts/soak-server. CALLS names a file with a request a line:
-- METHOD PATH TOKEN BODY, separated by tabs. They are sent in turn; the last line printed is a JSON summary.

local requests = {}

init = function()
  for line in io.lines(os.getenv("CALLS")) do
    local method, path, token, body = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
    requests[#requests + 1] = wrk.format(method, path, headers, body)
  end
end

local sent = 0

request = function()
  sent = sent % #requests + 1
  return requests[sent]
end

done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, "max_us": %d, "broken": %d, "refused": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    errors.connect + errors.read + errors.write + errors.timeout, errors.status
  ))
end
