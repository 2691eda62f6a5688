#!/usr/bin/env bash
# What the batch scripts here do inside a job: loratrain under srun, with a clean stop before the
# time limit, and the job back in the queue while loratrain ends with 75 (stopped, continue me).
#   slurm/run_until_done.sh tune.yaml [options of loratrain]
# Set by slurm/machine.sh or before sbatch:
#   LORATRAIN               the program (default: the installed one, build/loratrain of a repository)
#   LORATRAIN_MACHINE       the cluster's profile (default: slurm/machine.sh beside this script)
#   LORATRAIN_LAUNCHER      default: srun --mpi=pmix; or: mpirun --quiet --bind-to none
#   LORATRAIN_MAX_RESTARTS  the job is put back at most so often (default 20)
set -uo pipefail

# The launcher hands SIGUSR1 on to every rank. SIGTERM comes from scancel, or when time is over.
asked=
ended=
interrupted=
pid=
pass_on() {
    asked=yes
    interrupted=yes
    if [ -z "$pid" ]; then return; fi
    # A rank that has not begun would die of it, and the others would wait for that rank.
    for _ in {1..100}; do
        if [ -e "$LORATRAIN_EXIT_FILE" ] || ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.2
    done
    kill -USR1 "$pid" 2>/dev/null
}
trap pass_on USR1
trap 'ended=yes; pass_on' TERM

root="${LORATRAIN_ROOT:-$(cd "$(dirname "$0")/.." && pwd)}"
machine="${LORATRAIN_MACHINE:-$root/slurm/machine.sh}"
if [ -e "$machine" ]; then . "$machine"; fi

program="${LORATRAIN:-$root/build/loratrain}"
if [ -z "${LORATRAIN:-}" ] && [ ! -e "$program" ]; then program="$root/../../bin/loratrain"; fi
launcher="${LORATRAIN_LAUNCHER:-srun --mpi=pmix}"
. "$root/scripts/mpi_environment.sh" # of no use to srun
most_restarts="${LORATRAIN_MAX_RESTARTS:-20}"
restarts="${SLURM_RESTART_COUNT:-0}"
if ! command -v "$program" >/dev/null; then
    echo "error: $program is not here; build it (scripts/build.sh), install it or set LORATRAIN" >&2
    exit 2
fi

# srun does not take these two from the job; loratrain stops by itself before the end of the job.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi
if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
    end=$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2>/dev/null) &&
        export SLURM_JOB_END_TIME="$end"
fi

# Here loratrain says how it ended: srun may end with 0 although a node could not start its task.
export LORATRAIN_EXIT_FILE="$PWD/.loratrain-$SLURM_JOB_ID.exit"
if [ ! -w . ]; then LORATRAIN_EXIT_FILE="$(mktemp -u)"; fi
rm -f "$LORATRAIN_EXIT_FILE"

# After an error the launcher may wait for the tasks of a node that is lost: srun for KillWait.
do_not_wait() {
    local said=
    until [ "$said" = 1 ]; do
        sleep 1
        read -r said 2>/dev/null <"$LORATRAIN_EXIT_FILE"
    done
    for _ in {1..10}; do
        sleep 1
        if ! kill -0 "$pid" 2>/dev/null; then return; fi
    done
    echo "the launcher waits for a node that is lost, and is ended" >&2
    kill -KILL "$pid"
}

code=75
watch=
if [ -z "$asked" ]; then
    $launcher "$program" "$@" &
    pid=$!
    if [ -n "$asked" ]; then pass_on; fi
    do_not_wait &
    watch=$!
    disown
    interrupted=yes
fi
while [ -n "$interrupted" ] && [ -n "$pid" ]; do # a signal interrupts wait
    interrupted=
    wait "$pid"
    code=$?
done
if [ -n "$watch" ]; then kill "$watch" 2>/dev/null; fi

if [ -s "$LORATRAIN_EXIT_FILE" ]; then
    code=$(cat "$LORATRAIN_EXIT_FILE")
elif [ -n "$asked" ] && [ ! -e "$LORATRAIN_EXIT_FILE" ]; then
    code=75 # before it had started
elif [ "$code" -eq 0 ]; then
    echo "error: the launcher ended with 0, but loratrain did not run to its end; see above" >&2
    code=1
fi
rm -f "$LORATRAIN_EXIT_FILE"

if [ "$code" -ne 75 ]; then exit "$code"; fi
if [ -n "$ended" ]; then
    echo "cancelled or out of time; to continue: sbatch the same again"
elif [ "$restarts" -ge "$most_restarts" ]; then
    echo "not put back into the queue: $restarts restarts; to continue: sbatch the same again"
else
    echo "back into the queue (restart $((restarts + 1)) of at most $most_restarts)"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
