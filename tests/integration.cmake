# Tests that need more than one module's unit tests, and the bench of the operators.

# Operators of every backend against the plain fp64 loops of tests/reference.
set(tests_dir "${CMAKE_CURRENT_LIST_DIR}")
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${tests_dir}/backend/*.cpp")
add_executable(test_backend ${sources})
target_include_directories(test_backend PRIVATE "${tests_dir}")
target_link_libraries(test_backend PRIVATE loratrain_backend OpenMP::OpenMP_CXX GTest::gtest
                                           GTest::gtest_main)
loratrain_unity(test_backend)
add_test(NAME unit.backend COMMAND test_backend)
set(environment "ASAN_OPTIONS=allocator_may_return_null=1" "OMP_WAIT_POLICY=passive")
if(LORATRAIN_SANITIZE)
  list(APPEND environment "LORATRAIN_TEST_QUICK=1" "GTEST_FILTER=-*cpu_2_threads*")  # the release build has both
endif()
set_tests_properties(unit.backend PROPERTIES LABELS unit TIMEOUT 1500 ENVIRONMENT "${environment}")
loratrain_cases(test_backend)

option(LORATRAIN_BENCH "Build bench_ops and bench_cuda, which time the operators, and \
bench_packing, bench_bounds, bench_drains, bench_sweep, \
bench_replicas, bench_stream_memory" OFF)
if(LORATRAIN_BENCH)
  if(LORATRAIN_CUDA_USED)
    foreach(bench bench_cuda bench_delta)
      add_executable(${bench} "${tests_dir}/bench/${bench}.cpp")
      target_link_libraries(${bench} PRIVATE loratrain_backend)
    endforeach()
  endif()
  add_executable(bench_ops "${tests_dir}/bench/bench_ops.cpp")
  target_include_directories(bench_ops PRIVATE "${tests_dir}")
  target_link_libraries(bench_ops PRIVATE loratrain_backend)
  if(NOT LORATRAIN_BACKEND_ONLY)
    foreach(name bench_packing bench_bounds bench_drains bench_sweep bench_replicas)
      add_executable(${name} "${tests_dir}/bench/${name}.cpp")
      target_include_directories(${name} PRIVATE "${tests_dir}")
      target_link_libraries(${name} PRIVATE loratrain_plan)
    endforeach()
    add_executable(bench_stream_memory "${tests_dir}/bench/bench_stream_memory.cpp")
    target_include_directories(bench_stream_memory PRIVATE "${tests_dir}")
    target_link_libraries(bench_stream_memory PRIVATE loratrain_train GTest::gtest)
  endif()
endif()
