#!/usr/bin/env bash
# Builds the operators on a machine with a GPU, runs their tests and times them: one call, so that
# little of the machine's time is used. Logs and results go to ${OUT:-gpu_visit_out}.
#   gpu_visit.sh [cmake options...]      -DLORATRAIN_BACKEND_ONLY=OFF builds the whole program
set -uo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
out="${OUT:-$root/gpu_visit_out}"
build="$root/build-gpu"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.log"

generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
cmake -S "$root" -B "$build" "${generator[@]}" -DLORATRAIN_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 \
  -DLORATRAIN_BACKEND_ONLY=ON -DLORATRAIN_BENCH=ON "$@" >"$out/configure.log" 2>&1 &&
  cmake --build "$build" --parallel "$(nproc)" >"$out/build.log" 2>&1
status=$?
if [ "$status" -ne 0 ]; then
  tail -n 30 "$out/configure.log" "$out/build.log" 2>/dev/null
  exit "$status"
fi
echo "built in $SECONDS s"

export LORATRAIN_TEST_REQUIRE_GPUS=1
ctest --test-dir "$build" --output-on-failure -R '^unit\.(backend|cuda)$' >"$out/tests.log" 2>&1
status=$?
tail -n 15 "$out/tests.log"
for bench in bench_cuda bench_attention; do
  [ -x "$build/tests/$bench" ] && "$build/tests/$bench" 2>&1 | tee "$out/$bench.log"
done
exit "$status"
