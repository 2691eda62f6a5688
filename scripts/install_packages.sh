#!/usr/bin/env bash
# Installs the packages of a list (default: debian_packages.txt) that are missing on this machine.
set -euo pipefail
list="${1:-$(dirname "$0")/debian_packages.txt}"

missing=()
while read -r package; do
    case "$package" in ''|'#'*) continue ;; esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
        missing+=("$package")
done < "$list"
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "error: this script installs with apt-get, which is not here; install by hand: ${missing[*]}" >&2
    exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "error: missing packages: ${missing[*]}" >&2
    echo "    run once as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 2
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
