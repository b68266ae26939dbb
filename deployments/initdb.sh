#!/usr/bin/env bash
# Run once by PostgreSQL's container, in the new database `ledger`, whose owner is the custodian.
# The pipeline's role owns Prefect's database; in the ledger it may read and append (LOCK TABLE needs
# UPDATE; triggers refuse the statement).
set -euo pipefail
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set password="$(cat "${DPIW_SECRETS:-/run/secrets}/pipeline_password")" <<'SQL'
CREATE ROLE pipeline LOGIN PASSWORD :'password';
CREATE DATABASE prefect OWNER pipeline;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO pipeline;
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE ON TABLES TO pipeline;
SQL
