# Sourced by the scripts that start mpirun.
# Root may do it (containers, CI), as Open MPI asks.
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# A host that is lost ends the job: mpirun would wait for its daemon there until TCP gives up, a quarter
# of an hour later. 17 seconds, less than run.peer_timeout.
export OMPI_MCA_oob_tcp_keepalive_time="${OMPI_MCA_oob_tcp_keepalive_time:-8}"
export OMPI_MCA_oob_tcp_keepalive_intvl="${OMPI_MCA_oob_tcp_keepalive_intvl:-3}"
export OMPI_MCA_oob_tcp_keepalive_probes="${OMPI_MCA_oob_tcp_keepalive_probes:-3}"
