#!/usr/bin/env bash
# A real Slurm on this machine, to try batch scripts and for the tests; run as root.
#   scripts/local_slurm.sh start DIR [NODES [ON]]
#                                              munge, slurmctld and slurmd live in DIR (made if
#                                              missing); one slurmd for each node (default: 1).
#                                              "ON node2 COMMAND..." runs something where that node
#                                              is to be, which has a name and an address of its own
#                                              (a network namespace); slurmctld is on node1
#   export SLURM_CONF=DIR/slurm.conf           then sbatch, squeue, scancel, ... talk to it
#   scripts/local_slurm.sh stop DIR            ends them; DIR stays
set -euo pipefail

usage() {
    echo "usage: scripts/local_slurm.sh start DIR [NODES [ON]] | stop DIR" >&2
    exit 2
}

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

# COUNT ports, not of those that the system gives out itself: it might before they are used.
free_ports() {
    python3 - "$1" <<'END'
import random, socket, sys
found = []
for port in random.sample(range(20000, 32000), 12000):
    if len(found) == int(sys.argv[1]):
        break
    try:
        socket.socket().bind(("", port))
        found.append(port)
    except OSError:
        pass
print(*found)
END
}

on=
on_node() {
    if [ -n "$on" ]; then "$on" "$@"; else "${@:2}"; fi
}

address_of() {
    if [ -n "$on" ]; then on_node "$1" hostname -I | cut -d " " -f 1; else echo 127.0.0.1; fi
}

# Generous: at least 8 CPUs and 8 GPUs of each node are counted out, whatever the machine has.
# Open MPI names shared memory after the job's id: another Slurm's jobs here must have other ids.
write_conf() {
    local cpus host mpi node ports
    cpus=$(nproc)
    [ "$cpus" -ge 8 ] || cpus=8
    host=$(on_node node1 hostname -s)
    read -ra ports <<<"$(free_ports $(($(wc -w <<<"$1") + 1)))"
    mpi=none
    if ls /usr/lib/*/slurm*/mpi_pmix.so >/dev/null 2>&1; then mpi=pmix; fi
    cat >slurm.conf <<END
ClusterName=local
SlurmctldHost=$host($(address_of node1))
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$PWD/munge.socket,cred_expire=5
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool/%n
TmpFS=$PWD/tmp/%n
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd.%n.pid
SlurmctldLogFile=$PWD/slurmctld.log
SlurmdLogFile=$PWD/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=$mpi
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
FirstJobId=$((1 + 1000 * RANDOM))
MinJobAge=300
KillWait=30
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    for node in $1; do
        ports=("${ports[@]:1}")
        host=$(on_node "$node" hostname -s)
        echo "NodeName=$node NodeHostname=$host NodeAddr=$(address_of "$node") Port=${ports[0]}" \
            "CPUs=$cpus Gres=gpu:8 State=UNKNOWN" >>slurm.conf
    done
    touch gpu{0..7}
    echo "Name=gpu File=$PWD/gpu[0-7]" >gres.conf
}

wait_until_idle() {
    for _ in $(seq 150); do
        [ "$(on_node node1 sinfo -h -o %t 2>/dev/null)" = idle ] && return
        sleep 0.2
    done
    tail -n 5 "$PWD"/slurm*.log >&2
    fail "the nodes do not come up; see the logs in $PWD"
}

start() {
    local node nodes program
    on="${3:-}"
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null ||
            fail "$program is not installed (Debian packages munge and slurm-wlm)" 2
    done
    [ "$(id -u)" -eq 0 ] || fail "a local Slurm needs root" 2
    mkdir -p "$1"
    cd "$1"
    chmod 755 .
    [ ! -e slurmctld.pid ] || fail "$PWD holds a running Slurm; stop it first" 2
    nodes=$(seq -f node%g "${2:-1}")
    for node in $nodes; do mkdir -p state "spool/$node" "tmp/$node"; done
    [ -e munge.key ] || (umask 077 && head -c 1024 /dev/urandom >munge.key)
    munged --force --key-file="$PWD/munge.key" --socket="$PWD/munge.socket" \
        --pid-file="$PWD/munged.pid" --log-file="$PWD/munged.log" --seed-file="$PWD/munge.seed" \
        2>>munged.err || fail "munged does not start: $(tail -n 1 munged.err)"
    write_conf "$nodes"
    export SLURM_CONF="$PWD/slurm.conf"
    on_node node1 slurmctld
    for node in $nodes; do on_node "$node" slurmd -N "$node"; done
    wait_until_idle
    echo "Slurm runs; export SLURM_CONF=$PWD/slurm.conf"
}

stop() {
    local pid name
    cd "$1"
    SLURM_CONF="$PWD/slurm.conf" scancel --full --signal=KILL --user=root 2>/dev/null || true
    for name in slurmd*.pid slurmctld.pid munged.pid; do
        [ -e "$name" ] || continue
        pid=$(cat "$name")
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        rm -f "$name"
    done
}

case "${1:-}:$#" in
    start:[234]) start "${@:2}" ;;
    stop:2) stop "$2" ;;
    *) usage ;;
esac
