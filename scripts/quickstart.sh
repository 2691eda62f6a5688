#!/usr/bin/env bash
# From a bare clone to four trained adapters: installs what is missing, builds, imports the demo
# base and runs jobs/quickstart.yaml on two ranks.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
. scripts/mpi_environment.sh
scripts/build.sh build -DLORATRAIN_TESTS=OFF
mkdir -p runs/quickstart
[ -e runs/quickstart/demo_base.h5 ] ||
    build/loratrain import-hf inputs/demo_base runs/quickstart/demo_base.h5
ranks=2
mpirun --quiet -np "$ranks" --oversubscribe build/loratrain jobs/quickstart.yaml "$@"
