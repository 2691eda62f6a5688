#!/usr/bin/env bash
# Configures and builds into a folder: build.sh [BUILD_DIR] [cmake options...]   (default: build)
# LORATRAIN_TARGET: what to build, instead of everything.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="$root/build"
if [ $# -gt 0 ] && [[ "$1" != -* ]]; then
    build="$1"
    shift
fi
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    # Else it keeps nothing that uses a precompiled header.
    export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}"
fi
cmake -S "$root" -B "$build" -G Ninja "${launcher[@]}" "$@"
cmake --build "$build" --target "${LORATRAIN_TARGET:-all}"
