#!/usr/bin/env bash
# One visit to a machine with 1, 2 or 4 GPUs, in less than ten minutes: builds, runs the GPU tests,
# the bench table and the peers, and prints tables. Writes to ${OUT:-gpu_visit_out}: results.jsonl
# (a line per run), golden.jsonl (errors against the golden trajectories), table.md, logs.txt.
#   gpu_visit.sh [--tests] [--bench] [--peers] [--sanitize] [--only TEXT] [--gpus N] [--seconds S]
#                [cmake options...]
# Default parts: tests, bench, peers. --only: cases of tests/bench/gpu_cases.py whose name holds TEXT.
# LORATRAIN_COMMIT: the commit of this tree, where it was copied without its history.
# --seconds: what does not fit in this time is left out, and said so (default 570).
# LORATRAIN_TEST_REAL_MODEL, LORATRAIN_TEST_REAL_DATA: as tests/system/test_real_model.py says; the
# tests then train that model beside PEFT.
# LORATRAIN_GPU_PREFIX: a folder with include/ and lib/ of packages that this machine lacks
# (scripts/make_gpu_prefix.sh). Where others lack, only the operators are built, tested and timed.
set -uo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
out="${OUT:-$root/gpu_visit_out}"
build="$root/build-gpu"
. "$root/scripts/mpi_environment.sh"

fail() {
  echo "error: $1" >&2
  exit 2
}

parts=" "
limit=570
only=""
gpus=""
cmake_options=()
while [ $# -gt 0 ]; do
  case "$1" in
    --tests | --bench | --peers | --sanitize) parts="$parts${1#--} " ;;
    --only | --gpus | --seconds)
      [ $# -ge 2 ] || fail "$1 needs a value"
      case "$1" in --only) only="$2" ;; --gpus) gpus="$2" ;; --seconds) limit="$2" ;; esac
      shift
      ;;
    -D* | -G*) cmake_options+=("$1") ;;
    *) fail "unknown option '$1'; see the head of scripts/gpu_visit.sh" ;;
  esac
  shift
done
[ "$parts" = " " ] && parts=" tests bench peers "
has() { [[ "$parts" == *" $1 "* ]]; }
left() { echo $((limit - SECONDS)); }

mkdir -p "$out/logs"
out="$(cd "$out" && pwd)"
results="$out/results.jsonl"
rm -f "$results" "$out/golden.jsonl" "$out/table.md" "$out/logs.txt"
touch "$results"
# One file of all logs: easy to carry home.
trap 'tail -n +1 "$out"/logs/* >"$out/logs.txt" 2>/dev/null; rm -rf "$out/logs"' EXIT

nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader |
  tee "$out/logs/gpus.log" || fail "no GPU found: nvidia-smi failed"
[ -n "$gpus" ] || gpus="$(wc -l <"$out/logs/gpus.log")"
[ "$gpus" -eq 3 ] && gpus=2
[ "$gpus" -gt 4 ] && gpus=4
[ "$gpus" -ge 1 ] 2>/dev/null || fail "no GPU found, or --gpus '$gpus' is no number"

# record CASE NAME true|false|null RESULT: one line of results.jsonl (NAME, RESULT: plain text)
record() {
  printf '{"case": "%s", "name": "%s", "passed": %s, "result": "%s"}\n' "$1" "$2" "$3" "$4" >>"$results"
  echo "$2: $4"
}

# ---- build
prefix_options=()
if [ -n "${LORATRAIN_GPU_PREFIX:-}" ]; then
  [ -d "$LORATRAIN_GPU_PREFIX/include" ] || fail "LORATRAIN_GPU_PREFIX: $LORATRAIN_GPU_PREFIX has no include/"
  prefix_options=(-DCMAKE_PREFIX_PATH="$(cd "$LORATRAIN_GPU_PREFIX" && pwd)" -DBoost_NO_BOOST_CMAKE=ON)
fi
capability="$(head -n 1 "$out/logs/gpus.log" | sed 's/.*, *//; s/\.//')"
[[ "$capability" =~ ^[0-9]+$ ]] || capability=90
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)

configure() {
  cmake -S "$root" -B "$build" "${generator[@]}" -DLORATRAIN_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$capability" \
    -DLORATRAIN_TESTS=ON -DLORATRAIN_BENCH=ON "${prefix_options[@]}" "$@" "${cmake_options[@]}" \
    >"$out/logs/configure.log" 2>&1
}

program="$build/loratrain"
full=true
if ! configure -DLORATRAIN_BACKEND_ONLY=OFF; then
  full=false
  record test "whole program" null "not built, operators only"
  grep -A 4 -m 1 'CMake Error' "$out/logs/configure.log" | sed 's/^/    /'
  cp "$out/logs/configure.log" "$out/logs/configure_full.log"
  configure -DLORATRAIN_BACKEND_ONLY=ON || { tail -n 30 "$out/logs/configure.log"; exit 1; }
fi
grep -E '^-- (NCCL|NVTX|loratrain)' "$out/logs/configure.log"
targets=(test_backend test_cuda bench_cuda bench_attention)
$full && targets=(loratrain test_backend test_cuda)
$full && ! grep -q 'NCCL was not found' "$out/logs/configure.log" && targets+=(test_mpi_nccl_communicator test_mpi_nccl_rank_group)
timeout "$(left)" cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" \
  >"$out/logs/build.log" 2>&1 ||
  { tail -n 30 "$out/logs/build.log"; exit 1; }
echo "built in $SECONDS s"

# ---- tests
# ctest_part NAME: runs one ctest; LORATRAIN_TEST_* come from the environment
ctest_part() {
  local begin=$SECONDS time_left
  time_left="$(left)"
  [ "$time_left" -ge 10 ] || { record test "$1" null "not run: no time left"; return; }
  if timeout "$time_left" ctest --test-dir "$build" --no-tests=error --output-on-failure \
    -R "^${1//./\\.}$" -V >"$out/logs/$1.log" 2>&1; then
    record test "$1" true "passed in $((SECONDS - begin)) s"
  else
    record test "$1" false "FAILED after $((SECONDS - begin)) s"
    grep -E 'FAILED|FAIL:|ERROR:|Error|error:' "$out/logs/$1.log" | head -n 12
  fi
}

if has tests; then
  export LORATRAIN_TEST_REQUIRE_GPUS="$gpus" LORATRAIN_TEST_REPORT="$out/golden.jsonl"
  ctest_part unit.backend
  ctest_part unit.cuda
  if $full; then
    # Pipelines need several ranks, if need be on one GPU.
    [ "$gpus" -ge 4 ] || export LORATRAIN_SHARE_GPU=1
    [ -x "$build/tests/test_mpi_nccl_communicator" ] && ctest_part mpi.nccl_communicator.4
    [ -x "$build/tests/test_mpi_nccl_rank_group" ] && ctest_part mpi.nccl_rank_group.4
    ctest_part system.gpu
    ctest_part system.gpu_lanes
    ctest_part system.gpu_quantized
    [ -z "${LORATRAIN_TEST_REAL_MODEL:-}" ] || ctest_part system.real_model
    unset LORATRAIN_SHARE_GPU
    grep -hE '(fp32|bf16|layers) on [0-9]+ ([x+0-9 ]+ )?rank' "$out"/logs/system.gpu*.log
    grep -hsE '^(fp32|bf16): ' "$out/logs/system.real_model.log"
    if ! python3 -c 'import peft, transformers' 2>/dev/null; then
      record test "bf16 distance from PEFT" null "not run: python3 has no peft and transformers"
    elif [ ! -s "$out/golden.jsonl" ] || [ "$(left)" -lt 30 ]; then
      record test "bf16 distance from PEFT" null "not run: no golden run, or no time left"
    elif timeout "$(left)" python3 "$root/tests/golden/peft_bf16_distance.py" --out "$results" \
      --loratrain "$out/golden.jsonl" >"$out/logs/bf16_distance.log" 2>&1; then
      record test "bf16 distance from PEFT" true "loss ratio within 1.5 in every family"
    else
      record test "bf16 distance from PEFT" false "$(tail -n 1 "$out/logs/bf16_distance.log" | tr -dc '[:alnum:] :_.,')"
    fi
    grep -hE '^(family|llama|qwen|mistral)' "$out/logs/bf16_distance.log" 2>/dev/null
  fi
fi

# ---- sanitizers: the small shapes of the GPU's operators
finding='^=+ (Invalid|Error|Race|Uninit|Barrier|Program hit|Leaked)'
# sanitize TOOL TEST FILTER SHARE [option...]: in at most this share (1/SHARE) of the time left
sanitize() {
  local name="$1 $2" log="$out/logs/$1_$2.log" time_left status
  time_left="$(($(left) / $4))"
  [ "$time_left" -ge 15 ] || { record sanitizer "$name" null "not run: no time left"; return; }
  timeout "$time_left" compute-sanitizer --tool "$1" --error-exitcode 77 "${@:5}" "$build/tests/$2" \
    --gtest_filter="$3" >"$log" 2>&1
  status=$?
  local passed
  passed="$(grep -cE '^\[       OK \]' "$log")"
  if grep -qiE 'device not supported|unable to find injection' "$log"; then
    record sanitizer "$name" null "not run: the tool refuses this device"
  elif grep -qE "$finding" "$log" || [ "$status" -eq 77 ]; then
    record sanitizer "$name" false "FAILED: $(grep -m 1 -E "$finding" "$log" | tr -dc '[:alnum:] :_=.,()')"
  elif [ "$status" -eq 124 ]; then
    record sanitizer "$name" null "clean in $passed tests, then its time of $time_left s was over"
  elif [ "$status" -eq 0 ] && [ "$passed" -gt 0 ]; then
    record sanitizer "$name" true "clean, $passed tests"
  else
    record sanitizer "$name" false "FAILED: exit code $status, $passed tests passed"
  fi
}

if has sanitize; then
  if ! command -v compute-sanitizer >/dev/null; then
    record sanitizer compute-sanitizer null "not run: not installed"
  else
    # Races are looked for in this project's kernels, on short samples; racecheck ends with an
    # internal error in cuBLASLt's. It does not know that a lane arrives at a barrier for its warp
    # (two warps that hand over a buffer so are called a race too), as lanes of kernels/hopper do.
    share=8
    if has bench || has peers; then share=16; fi
    quick='*LongSample*:*RepeatTest*:*TimesWhatLastsLong*:*FailureNames*'
    for tool in memcheck initcheck synccheck racecheck; do
      kernels=()
      if [ "$tool" = racecheck ]; then
        kernels=(--kernel-name kns=loratrain --kernel-name-exclude kns=warpgroup)
        quick="$quick:*GemmTest*:*FiniteDifferences*" # the latter takes a minute
        export LORATRAIN_TEST_QUICK=1
      fi
      sanitize "$tool" test_backend "Backends/*/cuda_*-$quick" "$share" "${kernels[@]}"
      sanitize "$tool" test_cuda 'Implementations/*-*_long' "$((share - 1))" "${kernels[@]}"
      share=$((share - 2))
    done
    unset LORATRAIN_TEST_QUICK
  fi
fi

# ---- bench and peers
runs=(--gpus "$gpus" --program "$program" --out "$results" --only "$only" --commit "${LORATRAIN_COMMIT:-}")
has bench || runs+=(--no-bench)
has peers && runs+=(--peers)
if ! $full && has bench; then
  for bench in bench_cuda bench_attention; do
    [ "$(left)" -gt 20 ] && timeout "$(left)" "$build/tests/$bench" 2>&1 | tee "$out/logs/$bench.log"
  done
  runs+=(--no-bench)
fi
runs_failed=0
if has bench || has peers; then
  # Cases of equal sizes then differ in nothing but what they compare, and start without timing.
  rm -f "$build/algorithms.txt"
  LORATRAIN_ALGO_CACHE="$build/algorithms.txt" \
    python3 "$root/tests/bench/run_gpu_cases.py" "${runs[@]}" --seconds "$(left)" || runs_failed=1
fi

echo
python3 "$root/tests/bench/gpu_table.py" "$results" | tee "$out/table.md"
status=${PIPESTATUS[0]}
echo "finished after $SECONDS s"
[ "$status" -eq 0 ] && [ "$runs_failed" -eq 0 ]
