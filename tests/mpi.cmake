# Programs that run under MPI with a stated number of ranks; each has its own main() (mpi_main.h).
# Open MPI keeps memory until exit, which the leak checker would report.

# loratrain_mpi_test(NAME RANKS n... [SPLITS m...]): tests/mpi/NAME_test.cpp as mpi.NAME.n for every n,
# and as mpi.NAME.m+k on 4 = m+k ranks in two sessions at the same time.
function(loratrain_mpi_test name)
  cmake_parse_arguments(ARG "" "" "RANKS;SPLITS" ${ARGN})
  add_executable(test_mpi_${name} "${CMAKE_CURRENT_LIST_DIR}/mpi/${name}_test.cpp")
  target_include_directories(test_mpi_${name} PRIVATE "${CMAKE_CURRENT_LIST_DIR}")
  target_link_libraries(test_mpi_${name} PRIVATE loratrain_train GTest::gtest)
  target_precompile_headers(test_mpi_${name} REUSE_FROM loratrain_test_headers)
  foreach(ranks IN LISTS ARG_RANKS)
    loratrain_mpi_run(${name} ${ranks} ${ranks})
  endforeach()
  foreach(first IN LISTS ARG_SPLITS)
    math(EXPR second "4 - ${first}")
    loratrain_mpi_run(${name} ${first}+${second} 4 --split=${first})
  endforeach()
endfunction()

function(loratrain_mpi_run name label ranks)
  add_test(NAME mpi.${name}.${label}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --oversubscribe
                   --bind-to none $<TARGET_FILE:test_mpi_${name}> ${ARGN})
  set_tests_properties(mpi.${name}.${label} PROPERTIES
    LABELS "mpi;ranks_${ranks}" TIMEOUT 300 PROCESSORS 2 SKIP_RETURN_CODE 77
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMP_NUM_THREADS=1;ASAN_OPTIONS=detect_leaks=0:malloc_context_size=3;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_pml=ob1;\
OMPI_MCA_orte_tmpdir_base=${CMAKE_CURRENT_BINARY_DIR}/mpi.${name}.${label}")  # as harness.py
endfunction()

if(LORATRAIN_NCCL_USED)
  loratrain_mpi_test(nccl_communicator RANKS 2 4 SPLITS 2)
  loratrain_mpi_test(nccl_rank_group RANKS 2 4)
endif()
if(LORATRAIN_TESTS STREQUAL "optimised")
  return()
endif()
loratrain_mpi_test(mpi_session RANKS 4)
loratrain_mpi_test(collective RANKS 1 2 3 4 SPLITS 1 2)
loratrain_mpi_test(communicator RANKS 2 3 SPLITS 1 2)
loratrain_mpi_test(shared_memory RANKS 2 3 SPLITS 1 2)
loratrain_mpi_test(rank_pages RANKS 2 3)
loratrain_mpi_test(host_link RANKS 2 3)
loratrain_mpi_test(rank_group RANKS 1 2 3 4 SPLITS 1 2)
loratrain_mpi_test(star_network RANKS 1 2 4 SPLITS 1 2)
loratrain_mpi_test(command_reader RANKS 2 3)
loratrain_mpi_test(adapter_transfer RANKS 1 2 3 4 SPLITS 1 2)
loratrain_mpi_test(checkpoint RANKS 1 2 3 SPLITS 1 2)
loratrain_mpi_test(grow_run RANKS 1 2 3 4 SPLITS 1 2)
loratrain_mpi_test(gradient_exchange RANKS 1 2 3 4)
loratrain_mpi_test(pipeline_runner RANKS 2 4)
