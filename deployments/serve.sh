#!/usr/bin/env bash
# A local Prefect server, one process worker, and the deployment: for trying and for tests.
# Everything Prefect writes lies in PREFECT_HOME (default .dpiw/prefect), readable by you alone.
#   deployments/serve.sh [PREFECT_FILE]      stop with Ctrl-C; what was deployed keeps parameters and schedules
#   DPIW_GPU=1 deployments/serve.sh          also a worker for the pool dpiw-gpu
# -m: what is started below has a process group of its own, so that Ctrl-C reaches this script alone,
# which stops them in order. A worker that gets two signals kills its runs.
set -meuo pipefail
umask 077
file="${1:-deployments/prefect.yaml}"
port="${DPIW_PREFECT_PORT:-4200}"
export DPIW_CHECKOUT="${DPIW_CHECKOUT:-$PWD}"
export PREFECT_HOME="${PREFECT_HOME:-$PWD/.dpiw/prefect}"
export PREFECT_API_URL="http://127.0.0.1:$port/api"
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1 GX_ANALYTICS_ENABLED=false
export PREFECT_RESULTS_PERSIST_BY_DEFAULT=false PREFECT_TASKS_DEFAULT_NO_CACHE=true
export PREFECT_LOGGING_TO_API_ENABLED=false PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS=false
export PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY=false
export PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT=false
# The second interface asks a vendor's server in every browser, whatever analytics are set to.
export PREFECT_SERVER_UI_V2_ENABLED=false
# A busy machine makes a run late and does not end it (flows/__init__.py says how late).
export PREFECT_API_REQUEST_TIMEOUT=120 PREFECT_CLIENT_MAX_RETRIES=8
export PREFECT_SERVER_DATABASE_TIMEOUT=60 PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT=60
mkdir -p "$PREFECT_HOME"

prefect server start --host 127.0.0.1 --port "$port" >"$PREFECT_HOME/server.log" 2>&1 &
server=$!
workers=
# Asked to stop, server and worker get some seconds to do so; a run they leave behind is safe to
# kill at any moment, so nothing is waited for without end.
# The server stops last: a worker that has lost it says so at length.
stop() {
  trap '' INT TERM HUP
  exec 2>/dev/null # bash would announce what was ended
  end $workers
  end $server
  wait 2>/dev/null || true
}
end() {
  kill "$@" 2>/dev/null || return 0
  for _ in $(seq 1 "${DPIW_STOP_SECONDS:-20}"); do
    kill -0 "$@" 2>/dev/null || return 0
    sleep 1
  done
  kill -KILL "$@" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 0' INT TERM HUP
up=
for _ in $(seq 1 1200); do
  python - "$PREFECT_API_URL/health" <<'PY' && up=1 && break
import sys, urllib.request
try:
    sys.exit(0 if urllib.request.urlopen(sys.argv[1], timeout=30).status == 200 else 1)
except OSError:
    sys.exit(1)
PY
  kill -0 "$server" 2>/dev/null || { echo "the Prefect server did not start; see $PREFECT_HOME/server.log" >&2; exit 1; }
  sleep 0.5
done
[ -n "$up" ] || { echo "the Prefect server did not answer; see $PREFECT_HOME/server.log" >&2; exit 1; }
pool() {
  prefect --no-prompt work-pool create "$1" --type process --overwrite >/dev/null
  prefect work-pool set-concurrency-limit "$1" 1 >/dev/null
}
pool dpiw
pool dpiw-gpu
# Tasks that train on a GPU bear this tag: one at a time, whatever pool they run in.
prefect concurrency-limit create gpu 1 >/dev/null
# Parameters and schedules that were set on this server stay (a spec of somebody's own, another time);
# folder, settings and all else are the file's, each time.
kept="$(python -m flows.deployed "$file" "$PREFECT_HOME/deployed.yaml")"
prefect --no-prompt deploy --all --prefect-file "$PREFECT_HOME/deployed.yaml"
[ -z "$kept" ] || echo "kept as deployed before, parameters and schedule: $kept; all else as $file says"
# As another terminal, in another folder, has to type them.
tools="$(cd "$(dirname "$(command -v prefect)")" && pwd)"
quoted="$(printf %q "$(cd "$(dirname "$file")" && pwd)/$(basename "$file")")"
cat <<TOLD
Prefect: http://127.0.0.1:$port   API: $PREFECT_API_URL   deployment: dpiw-release/monthly
Run it now, from another terminal:
  cd $(printf %q "$DPIW_CHECKOUT")
  export PATH=$(printf %q "$tools"):\$PATH
  export PREFECT_API_URL=$PREFECT_API_URL PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1
  prefect deployment run dpiw-release/monthly
A spec of your own in its place, after the same three lines (below this folder, or below DPIW_ROOT
if that was set before this script); the last line sets the time:
  DPIW_CHECKOUT=\$PWD prefect --no-prompt deploy --name monthly --param spec=/PATH/TO/release.yaml --prefect-file $quoted
  prefect deployment schedule create dpiw-release/monthly --replace --accept-yes --cron "0 3 2 * *"
The weekly audit is of the worked example's ledger until it is given yours, and your key:
  DPIW_CHECKOUT=\$PWD prefect --no-prompt deploy --name weekly --param ledger=/PATH/TO/release.yaml --param key=/PATH/TO/curator.pub --param out=/PATH/TO/audit --prefect-file $quoted
TOLD
prefect worker start --pool dpiw --type process --name local &
workers=$!
if [ -n "${DPIW_GPU:-}" ]; then
  prefect worker start --pool dpiw-gpu --type process --name local-gpu &
  workers="$workers $!"
fi
wait $workers
