#!/bin/sh
# manage.py as the units run it, with their account and environment: /opt/amends/manage check --deploy
# deploy/install.sh puts it there. AMENDS_ENVIRONMENT names another file than /etc/amends/environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export AMENDS_STATIC_ROOT="$here/static" AMENDS_HEADS_FOLDER=/var/lib/amends/heads
while IFS= read -r line || [ -n "$line" ]; do # NAME=value, taken as it stands, as systemd does
    case $line in
    '' | '#'* | ';'*) ;;
    *=*) export "${line?}" ;;
    esac
done < "${AMENDS_ENVIRONMENT:-/etc/amends/environment}"
if [ "$(id -u)" -eq 0 ] && id amends > /dev/null 2>&1; then
    exec setpriv --reuid=amends --regid=amends --init-groups -- "$here/venv/bin/python" "$here/app/manage.py" "$@"
fi
exec "$here/venv/bin/python" "$here/app/manage.py" "$@"
