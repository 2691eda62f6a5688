#!/usr/bin/env bash
# Installs what is missing, builds, and passes all tests: the tests under AddressSanitizer and
# UndefinedBehaviorSanitizer first, then everything in the release build; ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
scripts/install_packages.sh scripts/debian_packages_tests.txt
. scripts/mpi_environment.sh

# Open MPI keeps memory until exit, which the leak checker would report for MPI programs; unit tests
# are checked for leaks by themselves.
scripts/build.sh build-sanitize -DLORATRAIN_TESTS=ON -DLORATRAIN_CUDA=OFF \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG" \
    -DLORATRAIN_SANITIZE=address,undefined
ctest --test-dir build-sanitize --output-on-failure -j "$(nproc)" -L unit
ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build-sanitize --output-on-failure -j "$(nproc)" \
    -L 'mpi|sanitize'

scripts/build.sh build-test -DLORATRAIN_TESTS=ON
ctest --test-dir build-test --output-on-failure -j "$(nproc)" "$@"
