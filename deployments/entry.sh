#!/usr/bin/env bash
# What a container of compose.yaml runs: server, deploy, worker, site, answers URL, or any command.
# Secrets are files in DPIW_SECRETS, each optional: prefect_auth (user:password of the server), pgpass
# (libpq's form), and curator_key, which a spec names as `signing_key: /home/dpiw/curator_key`. The last
# two may also be DPIW_SECRET_PGPASS and DPIW_SECRET_CURATOR_KEY, from a Prefect Secret block by a
# deployment's `env: {DPIW_SECRET_PGPASS: "{{ prefect.blocks.secret.pgpass }}"}`: everyone who may inspect
# the container sees such a variable, so prefer files.
set -euo pipefail
umask 077
secrets="${DPIW_SECRETS:-/run/secrets}"
if [ -r "$secrets/prefect_auth" ]; then
  PREFECT_API_AUTH_STRING="$(cat "$secrets/prefect_auth")"
  export PREFECT_API_AUTH_STRING PREFECT_SERVER_API_AUTH_STRING="$PREFECT_API_AUTH_STRING"
fi
# A mounted secret has the mode that it has on the host; who reads these wants 0600. Copied once in a
# container's life, as health checks run beside who reads them.
for name in pgpass curator_key; do
  variable="DPIW_SECRET_${name^^}"
  [ -z "${!variable:-}" ] || printf '%s\n' "${!variable}" >"$HOME/$name"
  unset "$variable"
  [ ! -r "$secrets/$name" ] || [ -e "$HOME/$name" ] || install -m 600 "$secrets/$name" "$HOME/$name"
done
[ ! -e "$HOME/pgpass" ] || export PGPASSFILE="$HOME/pgpass"
case "${1:-}" in
  server)
    exec prefect server start --host "${DPIW_HOST:-0.0.0.0}" --port "${DPIW_PREFECT_PORT:-4200}"
    ;;
  deploy) # pools, and what prefect.yaml deploys; parameters and schedules that people set stay
    for pool in dpiw dpiw-gpu; do
      prefect --no-prompt work-pool create "$pool" --type process --overwrite \
        --base-job-template deployments/pool-process.json
      prefect work-pool set-concurrency-limit "$pool" 1
    done
    prefect concurrency-limit create gpu 1
    python -m flows.deployed "${2:-deployments/prefect.yaml}" "$HOME/deployed.yaml"
    exec prefect --no-prompt deploy --all --prefect-file "$HOME/deployed.yaml"
    ;;
  worker)
    exec prefect worker start --pool "${2:-dpiw}" --type process --install-policy never --with-healthcheck
    ;;
  site)
    exec python -m http.server "${DPIW_SITE_PORT:-8080}" --bind "${DPIW_HOST:-0.0.0.0}" --directory "${2:-/srv/dpiw/site}"
    ;;
  answers)
    exec python -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=20)' "$2"
    ;;
  *) exec "$@" ;;
esac
