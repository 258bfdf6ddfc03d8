#!/bin/sh
# The role that the desk runs as: it owns nothing, and `manage.py prepare` gives it what it needs.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$AMENDS_DESK_PASSWORD" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE amends_desk LOGIN PASSWORD :'password';
SQL
