#!/usr/bin/env bash
# Collects packages of this machine that the machine with the GPUs lacks into a small folder, for
# LORATRAIN_GPU_PREFIX of gpu_visit.sh: Boost.Program_options and Asio (headers by bcp, Debian's
# libboost-tools-dev, and the shared library), and with a second argument cudnn-frontend's headers.
#   make_gpu_prefix.sh DIR [CUDNN_FRONTEND_INCLUDE]
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: make_gpu_prefix.sh DIR [CUDNN_FRONTEND_INCLUDE]" >&2
  exit 2
fi
prefix="$1"
frontend="${2:-}"

fail() {
  echo "error: $1" >&2
  exit 1
}
command -v bcp >/dev/null || fail "bcp was not found; install Boost's tools (Debian: libboost-tools-dev)"
library="$(printf '#include <boost/program_options.hpp>\nint main() {}\n' |
  "${CXX:-c++}" -x c++ - -Wl,--no-as-needed -lboost_program_options -Wl,--trace -o /dev/null 2>&1 |
  grep -m 1 'libboost_program_options\.so')" ||
  fail "Boost.Program_options was not found; install it (Debian: libboost-program-options-dev)"
boost="$(printf '#include <boost/version.hpp>\n' | "${CXX:-c++}" -x c++ -M - |
  tr ' ' '\n' | grep -m 1 'boost/version\.hpp$')"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
bcp --boost="${boost%/boost/version.hpp}" program_options boost/asio.hpp "$work" >"$work/log" 2>&1 ||
  fail "bcp: $(tail -n 3 "$work/log")"
mkdir -p "$prefix/include" "$prefix/lib"
rm -rf "$prefix/include/boost"
cp -R "$work/boost" "$prefix/include/" # the C headers beside it belong to the machine
# Files instead of links: not every way of copying keeps links.
cp -L "$library" "$prefix/lib/$(basename "$(readlink -f "$library")")"
cp -L "$library" "$prefix/lib/libboost_program_options.so"

if [ -n "$frontend" ]; then
  [ -f "$frontend/cudnn_frontend.h" ] || fail "$frontend holds no cudnn_frontend.h"
  cp -LR "$frontend/." "$prefix/include/"
fi
du -sh --apparent-size "$prefix"
