#!/usr/bin/env bash
# Installs what is missing, builds, and passes all tests; ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
. scripts/mpi_environment.sh
scripts/build.sh build-test -DLORATRAIN_TESTS=ON
ctest --test-dir build-test --output-on-failure -j "$(nproc)" "$@"
