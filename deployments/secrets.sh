#!/usr/bin/env bash
# Make the secrets of compose.yaml, once:   sudo deployments/secrets.sh [FOLDER]
# An existing folder stays as it is. The owners are the users of the containers that read them.
set -euo pipefail
umask 077
folder="${1:-$(dirname "$0")/secrets}"
word() { python3 -c 'import secrets; print(secrets.token_urlsafe(24))'; }
mkdir "$folder"
cd "$folder"
word >custodian_password
word >pipeline_password
echo "*:*:*:pipeline:$(cat pipeline_password)" >pgpass
echo "dpiw:$(word)" >prefect_auth
if [ "$(id -u)" = 0 ]; then
  chown 999 custodian_password pipeline_password # postgres
  chown 10001 pgpass prefect_auth
  chmod 711 .
fi
