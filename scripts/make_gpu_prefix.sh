#!/usr/bin/env bash
# Collects packages of this machine that the machine with the GPUs lacks into a small folder, for
# LORATRAIN_GPU_PREFIX of gpu_visit.sh: Boost.Program_options and Asio (headers by bcp, Debian's
# libboost-tools-dev, and the shared library).
#   make_gpu_prefix.sh DIR
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: make_gpu_prefix.sh DIR" >&2
  exit 2
fi
prefix="$1"

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
du -sh --apparent-size "$prefix"
