#!/bin/sh
# Installs one Debian package without asking anything; fails where that is impossible.
# Usage: tools/apt_install.sh PACKAGE
set -eu

command -v apt-get >/dev/null 2>&1 || exit 1
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    exit 1
fi

echo "Installing $1 ..." >&2
# An update that fails for one source may still have brought the package's own, so only the install decides.
$sudo apt-get update -qq >/dev/null 2>&1 || true
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1
