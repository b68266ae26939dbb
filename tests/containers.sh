#!/usr/bin/env bash
# Play docs/year.md, "Where it runs", on a machine with a container engine: two keys, three of four
# months published by a worker in a container while its server is killed, a withdrawal, a restart.
#   make test-containers
# It takes minutes, ports 4200 and 8080, and the base images that compose.yaml and Containerfile name.
# It builds the last commit as the image dpiw:0.1.0, in a compose project of its own, and removes all
# but the image: do not run it where an institution's containers run. Exit code: 0 if every claim holds.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="$here/${PYTHON:-.venv/bin/python}"
place="$(mktemp -d)"
export COMPOSE_PROJECT_NAME=dpiw-test
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
cd "$place"
git clone -q "$here" checkout
cd checkout
compose() { docker compose -f deployments/compose.yaml "$@"; }
end() { compose down --volumes --timeout 30 >"$place/down.log" 2>&1; $sudo rm -rf "$place"; }
trap end EXIT
claim() { echo "ok    $1"; }
fail() { echo "FAIL  $1"; compose logs worker | tail -n 40; exit 1; }
ends() { # code command...
  local wanted=$1 code=0; shift
  "$@" >"$place/said" 2>&1 || code=$?
  [ "$code" = "$wanted" ] || { cat "$place/said"; fail "exit code $code instead of $wanted: $*"; }
}
months() { compose exec -T worker dpiw series "$spec" 2>/dev/null || true; }

# What an institution brings: keys, spec, data dictionary, deployment, tables; none for March.
spec=/srv/dpiw/institution/release.yaml
mkdir -p keys tables deployments/institution
for name in curator second; do "$python" -m dpiw.cli.main key new "keys/$name.key"; done
cp keys/*.pub examples/population/schema.yaml deployments/institution
sed -e 's#tables/#/srv/dpiw/source/#' -e 's#\.\./population/##' -e 's#2025-12#2025-04#' \
  -e 's#^state: .*#state: /srv/dpiw/state#' -e 's#^publish_to: .*#publish_to: /srv/dpiw/site/releases#' \
  -e 's#^signing_key: .*#signing_key: /home/dpiw/curator_key#' examples/year/release.yaml \
  > deployments/institution/release.yaml
echo 'ledger: postgresql+psycopg://pipeline@/ledger?host=/var/run/postgresql' >> deployments/institution/release.yaml
"$python" - "$spec" <<'PY'
import sys
from pathlib import Path
from ruamel.yaml import YAML
sys.path.insert(0, "examples/population")
import simulate
yaml = YAML()
file = yaml.load(Path("deployments/prefect.yaml"))
file["deployments"] = [one for one in file["deployments"] if one["name"] == "catch-up"]
file["deployments"][0]["parameters"]["spec"] = sys.argv[1]
yaml.dump(file, Path("deployments/institution/prefect.yaml"))
for month in ("01", "02", "04"):
    people = simulate.population(rows=20_000, seed=simulate.CONFIDENTIAL_SEED + int(month))
    people.to_csv(f"tables/2025-{month}.csv", index=False)
PY
chmod -R go-rwx tables

# The commands of the page.
$sudo deployments/secrets.sh
$sudo install -m 600 -o 10001 keys/curator.key deployments/secrets/curator_key
compose up --build --detach
docker run --rm --user 0 -v dpiw-test_source:/to -v "$PWD/tables:/from:ro" --entrypoint sh dpiw:0.1.0 \
  -c 'cp /from/* /to && chown 10001:10001 /to/*'
PGPASSWORD="$($sudo cat deployments/secrets/custodian_password)"
export PGPASSWORD
compose run --rm --no-deps -e PGPASSWORD worker dpiw ledger register town --create \
  --ledger 'postgresql+psycopg://custodian@/ledger?host=/var/run/postgresql' \
  --relation add_or_remove_one --epsilon 1.5 --delta 1e-4 --sign-with /home/dpiw/curator_key
unset PGPASSWORD
for role in curator:curator second:approver; do
  ends 0 compose exec -T worker dpiw key add --ledger "$spec" --role "${role#*:}" \
    --public "/srv/dpiw/institution/${role%:*}.pub" --sign-with /home/dpiw/curator_key
done
claim "server, PostgreSQL, worker and site run; the custodian made the ledger, the pipeline's role has two keys"
ends 27 compose exec -T worker dpiw release "$spec" --period 2025-01
claim "one key alone is refused"
$sudo install -m 600 -o 10001 keys/second.key "$place/second.key"
for month in 01 02 03 04; do
  ends 0 compose run --rm --no-deps -v "$place/second.key:/tmp/second.key:ro" worker \
    dpiw approve "$spec" --period "2025-$month" --key /tmp/second.key
done
ends 0 compose exec -T worker deployments/entry.sh prefect deployment run dpiw-series/catch-up
for _ in $(seq 90); do [[ "$(months)" =~ 2025-01\ +published ]] && break; sleep 10; done
compose kill -s KILL server
compose up --detach
for _ in $(seq 90); do [[ "$(months)" =~ 2025-04\ +published ]] && break; sleep 10; done
found="$(months | awk '/^2025/ {print $2}' | xargs)"
[ "$found" = "published published missing published" ] || fail "months: $found"
claim "the server was killed after the first month; three are published, and the one without a table is missing"
[[ "$(months)" =~ "carries 3 further periods" ]] || fail "what is left"
claim "each is paid once"
ends 0 compose exec -T worker sh -c "dpiw withdraw /srv/dpiw/site/releases/*-2025-02-* --ledger $spec --reason error"
ends 54 compose exec -T worker sh -c 'dpiw verify /srv/dpiw/site/releases/*-2025-02-* --key /srv/dpiw/institution/curator.pub'
ends 0 compose exec -T worker dpiw site /srv/dpiw/site --ledger "$spec" --key /srv/dpiw/institution/curator.pub --key /srv/dpiw/institution/second.pub
curl -fsS http://127.0.0.1:8080/index.json | grep -q withdrawn || fail "the site"
claim "a release is withdrawn; readers are refused, and the site says so"
compose down --timeout 60
compose up --detach
found="$(months | awk '/^2025/ {print $2}' | xargs)"
[ "$found" = "published withdrawn missing published" ] || fail "after a restart: $found"
ends 0 compose exec -T worker dpiw ledger verify --ledger "$spec" --key /srv/dpiw/institution/curator.pub --key /srv/dpiw/institution/second.pub
claim "after a restart of all containers the ledger verifies"
