#!/bin/sh
# Makes .venv, with this project and its development tools in it; does nothing when it is up to date.
# PYTHON chooses the interpreter: PYTHON=python3.12 tools/setup_python.sh
set -eu

cd "$(dirname "$0")/.."
root=$(pwd -P)
stamp=.venv/.evenkeel-stamp

# A launcher on PATH may point at nothing, so only running it tells whether it fits.
fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

# Sets `python` to the first interpreter that can make a .venv.
find_python() {
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.13 python3.12 python3.11; fi
    for python in "$@"; do
        # Debian's Python comes without ensurepip, and then venv has no pip to put in.
        if fits "$python" && "$python" -c 'import venv, ensurepip' 2>/dev/null; then return 0; fi
    done
    return 1
}

# No package makes a PYTHON of the wrong version fit, so nothing is installed for one.
install_python() {
    { [ -z "${PYTHON:-}" ] || fits "$PYTHON"; } && tools/apt_install.sh python3-venv
}

# A .venv that was moved, left half made, or made by another Python than PYTHON is beyond updating.
reusable() {
    fits .venv/bin/python &&
        .venv/bin/python -c 'import pip' 2>/dev/null &&
        grep -qF " $root/.venv" .venv/pyvenv.cfg &&
        { [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -V 2>&1)" = "$(.venv/bin/python -V)" ]; }
}

state() {
    { cat pyproject.toml constraints.txt; .venv/bin/python -V; } | cksum
}

if reusable; then
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(state)" ]; then exit 0; fi
else
    find_python || { install_python && find_python; } || {
        cat >&2 <<'END'
Evenkeel needs Python 3.11, 3.12 or 3.13 with venv and ensurepip, and none was found. Install it and run this again:
  Debian, Ubuntu:  sudo apt-get install python3-venv
  Fedora:          sudo dnf install python3.13
  macOS:           brew install python@3.13
or set PYTHON to one you already have (a PYTHON that is set is the only one tried).
END
        exit 1
    }
    rm -rf .venv
    "$python" -m venv .venv
fi

echo "Installing Python packages into .venv ..." >&2
# The variables reach the build of this project too, which -c alone does not.
export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m pip install -q -c constraints.txt -e '.[dev]'
state >"$stamp"
