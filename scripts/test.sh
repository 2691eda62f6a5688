#!/usr/bin/env bash
# Installs what is missing, builds, and passes all tests: unit and MPI tests and fuzzing under
# AddressSanitizer and UndefinedBehaviorSanitizer; operators, planning and the program as users run it
# in the release build, to whose ctest arguments go. A test that starts several processes (labels system
# and mpi) may fail once: it runs again and is listed as flaky. Ends with "N passed, N failed" over all.
# LORATRAIN_FAULTS, LORATRAIN_EARLY_STOPS: random kills and stops; the tests' own numbers are larger.
# LORATRAIN_FUZZ_SECONDS, LORATRAIN_FUZZ_SEED: processor time for changed inputs under the sanitizers, a
# minute by default, and where they begin: by default the time of the commit, so that each commit has
# others and a run of it can be repeated.
# LORATRAIN_STRICT=1, which CI sets: compiler warnings are errors, and clang parses every fourth source of
# src/ on its own, others for each commit, with the standard library's headers precompiled (scripts/check_sources.py).
# LORATRAIN_FULL_TESTS=1: all random cases of the unit tests, all checks of the sanitizers, and all tests in
# both builds; with LORATRAIN_STRICT=1 clang and GCC parse all sources, and nothing is precompiled.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
scripts/install_packages.sh scripts/debian_packages_tests.txt
strict="${LORATRAIN_STRICT:-}"
[ -z "$strict" ] || scripts/install_packages.sh scripts/debian_packages_strict.txt
build_options=("-DLORATRAIN_WERROR=${strict:+ON}" -DLORATRAIN_UNITY_SOURCES=40)
sources="strict_$([ -n "${LORATRAIN_FULL_TESTS:-}" ] && echo whole || echo quick)"  # label of tests
. scripts/mpi_environment.sh
scripts/test_python.sh --make &  # beside the build
python=$!
# As tests/system/harness.py says.
if grep -qw avx2 /proc/cpuinfo && ! grep -qw avx512f /proc/cpuinfo; then
    export DNNL_MAX_CPU_ISA="${DNNL_MAX_CPU_ISA:-SSE41}"
fi
export LORATRAIN_FAULTS="${LORATRAIN_FAULTS:-4}" LORATRAIN_EARLY_STOPS="${LORATRAIN_EARLY_STOPS:-3}"
export LORATRAIN_FUZZ_SECONDS="${LORATRAIN_FUZZ_SECONDS:-60}"
export LORATRAIN_FUZZ_SEED="${LORATRAIN_FUZZ_SEED:-$(git log -1 --format=%ct 2>/dev/null || echo 1)}"
log="$(mktemp)"

# names STATUS: of the tests that ended so at least once, over all runs of ctest
names() { sed -nE "s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: (\S+) \.*.*($1).*/\1/p" "$log" | sort -u; }

summary() {
    local failed lines
    jobs -p | xargs -r kill 2>/dev/null || true
    names '\*\*\*(Failed|Timeout|Exception)|Subprocess aborted' >"$log.once"
    sed -nE 's/^\t *[0-9]+ - (\S+) \((Failed|Timeout|.*[Aa]bort.*|SEGFAULT|.*Exception.*)\).*/\1/p' "$log" |
        sort -u >"$log.failed"
    lines="$(comm -23 "$log.once" "$log.failed" | tr '\n' ' ')"
    [ -z "$lines" ] || echo "flaky, passed when run again: $lines"
    lines="$(names '\*\*\*Skipped' | tr '\n' ' ')"
    [ -z "$lines" ] || echo "skipped: $lines"
    failed="$(wc -l <"$log.failed")"
    echo "$(sed -nE 's/.* ([0-9]+) tests failed out of ([0-9]+).*/\2/p' "$log" |
        awk -v others="$((failed + $(grep -c '\*\*\*Skipped' "$log" || true)))" \
            '{ all += $1 } END { print all - others }') passed, $failed failed"
    rm -f "$log" "$log".*
}
trap summary EXIT

# run_tests BUILD_DIR ctest options...
run_tests() { ctest --test-dir "$1" --output-on-failure "${@:2}" | tee -a "$log"; }
alone=(-j "$(nproc)")
waiting=(-j "$((2 * $(nproc)))" --repeat until-pass:2)  # processes that wait for each other mostly

under_the_sanitizers() {
    local checks=OFF target=loratrain_sanitized units='unit.(plan|bench|selftest|app)' programs='mpi|fuzz' failed=0
    if [ -n "${LORATRAIN_FULL_TESTS:-}" ]; then
        checks=ON target=all units='^$' programs='mpi|sanitize'
    fi
    LORATRAIN_TARGET=$target scripts/build.sh build-sanitize "${build_options[@]}" -DLORATRAIN_TESTS=ON -DLORATRAIN_CUDA=OFF \
        -DLORATRAIN_NATIVE=ON \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-Og -g1 -DNDEBUG" \
        -DLORATRAIN_SANITIZE=address,undefined -DLORATRAIN_SANITIZE_ALL=$checks || return 1
    run_tests build-sanitize "${alone[@]}" -L "unit${strict:+|$sources}" -E "$units" || failed=1
    run_tests build-sanitize "${waiting[@]}" -L "$programs" || failed=1
    return $failed
}

tests=optimised
[ -z "${LORATRAIN_FULL_TESTS:-}" ] || tests=ON
scripts/build.sh build-test "${build_options[@]}" -DLORATRAIN_TESTS=$tests
# Tests of the program wait for much; what computes fills the gaps.
(renice -n 10 -p $BASHPID >/dev/null; log="$log.sanitized" under_the_sanitizers >"$log.other" 2>&1) &
sanitized=$!
failed=0
wait $python  # no test finds it half made
run_tests build-test "${alone[@]}" -LE 'mpi|system|strict|case' "$@" || failed=1
run_tests build-test "${waiting[@]}" -L 'mpi|system' "$@" || failed=1
wait $sanitized || failed=1
cat "$log.other"
cat "$log.sanitized" >>"$log" 2>/dev/null || failed=1
exit $failed
