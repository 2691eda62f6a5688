#!/usr/bin/env bash
# Configures and builds into a folder: build.sh [BUILD_DIR] [cmake options...]   (default: build)
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="$root/build"
if [ $# -gt 0 ] && [[ "$1" != -* ]]; then
    build="$1"
    shift
fi
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S "$root" -B "$build" -G Ninja "${launcher[@]}" "$@"
cmake --build "$build"
