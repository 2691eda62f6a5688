# Sourced by the scripts that start mpirun: lets root do it (containers, CI), as Open MPI asks.
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
