#!/bin/sh
# Make .venv and install a lock file into it: bootstrap.sh LOCK STAMP
# Nothing but Python 3.11 or newer is needed, and nothing outside .venv is touched.
set -eu
lock=$1
stamp=$2

python=
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Amends needs Python 3.11 or newer. Install it, or say where it is: make PYTHON=/path/to/python3.12 …" >&2
    exit 1
fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "Making .venv with $("$python" --version)"
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        echo "This Python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2
        exit 1
    fi
fi

# The runtime's packages are a part of the developer's: whichever lock is there, the stamp says for which text.
sum=$(cksum < "$lock")
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$sum" ]; then
    echo "Installing $lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
        --root-user-action=ignore --require-hashes -r "$lock"
    printf '%s\n' "$sum" > "$stamp"
fi
# The desk imports the client's protocol: sdk/ is on the path, as an editable install would put it.
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '../../../../sdk\n' > "$packages/amends-sdk.pth"
touch "$stamp"
