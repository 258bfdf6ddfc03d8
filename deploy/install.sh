#!/bin/sh
# Install this checkout below a folder: sh deploy/install.sh /opt/amends
# Below it: app/ (the code), venv/ (its packages, by the hashes of requirements/runtime.lock), static/ (collected and
# compressed files), manage (manage.py with the account and the environment of the units). Nothing else on the machine is touched. It may be repeated; for a new version take a new folder,
# run its `manage.py prepare`, and let the processes start from there. PYTHON names another interpreter than python3.
set -eu
if [ $# -ne 1 ]; then
    echo "Say where: sh deploy/install.sh /opt/amends" >&2
    exit 2
fi
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Amends needs Python 3.11 or newer. Say where it is: PYTHON=/path/to/python3.12 sh deploy/install.sh $1" >&2
    exit 1
fi
mkdir -p "$1/app"
prefix=$(cd "$1" && pwd)

for part in manage.py LICENSE config edge workspaces ledger connectors approvals recovery templates static; do
    rm -rf "${prefix:?}/app/$part"
    cp -R "$here/$part" "$prefix/app/$part"
done
rm -rf "$prefix/app/sdk"
mkdir "$prefix/app/sdk"
cp -R "$here/sdk/amends" "$here/sdk/pyproject.toml" "$here/sdk/README.md" "$prefix/app/sdk/"
rm -rf "$prefix/app/sdk-js"
mkdir "$prefix/app/sdk-js"
cp -R "$here/sdk-js/dist" "$here/sdk-js/package.json" "$here/sdk-js/README.md" "$prefix/app/sdk-js/"

[ -x "$prefix/venv/bin/python" ] || "$python" -m venv "$prefix/venv"
own=$prefix/venv/bin/python
"$own" -m pip install --quiet --disable-pip-version-check --no-input --root-user-action=ignore \
    --require-hashes -r "$here/requirements/runtime.lock"
packages=$("$own" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$prefix/app/sdk" > "$packages/amends-sdk.pth"
"$own" -m compileall -q "$prefix/app"
cp "$here/deploy/manage.sh" "$prefix/manage"
chmod 755 "$prefix/manage"

# Collecting asks no server and uses no secret; the settings want to be told of both all the same.
cd "$prefix/app"
AMENDS_STATIC_ROOT=$prefix/static AMENDS_URL=http://localhost DATABASE_URL=postgresql:///unused \
    REDIS_URL=redis://unused DJANGO_SECRET_KEY=unused AMENDS_SECRET_KEYS=unused \
    "$own" manage.py prepare --static-alone
echo "Installed in $prefix. Next: docs/install.md, or docs/running.md, “With your own servers”."
