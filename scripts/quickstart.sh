#!/usr/bin/env bash
# Four trained adapters: imports the demo base and runs jobs/quickstart.yaml on two ranks, or on one if
# the machine has one GPU, which ranks do not share.
#   quickstart.sh [options of loratrain]
# From a bare clone it installs what is missing and builds first, and writes to runs/quickstart there; from
# an installed tree it writes to ./quickstart.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
. "$root/scripts/mpi_environment.sh"
if [ -e "$root/CMakeLists.txt" ]; then
    cd "$root"
    scripts/install_packages.sh
    scripts/build.sh build -DLORATRAIN_TESTS=OFF
    program="$root/build/loratrain"
    folder="$root/runs/quickstart"  # where the job looks
    settings=()
else
    program="$root/../../bin/loratrain"
    folder="$PWD/quickstart"
    settings=(--set "model.weights=$folder/demo_base.h5" --set "run.dir=$folder/run")
fi
mkdir -p "$folder"
[ -e "$folder/demo_base.h5" ] || "$program" import-hf "$root/inputs/demo_base" "$folder/demo_base.h5"
gpus="$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)"
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || gpus="$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)"
ranks=2
[ "$gpus" != 1 ] || ranks=1  # ranks do not share a GPU
mpirun --quiet -np "$ranks" --oversubscribe "$program" "$root/jobs/quickstart.yaml" "${settings[@]}" "$@"
