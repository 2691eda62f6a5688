# Tests of the CUDA backend's classes below its ops, and the bench of attention.

if(NOT LORATRAIN_CUDA_USED)
  return()
endif()

set(tests_dir "${CMAKE_CURRENT_LIST_DIR}")

# Host code: only the includes are CUDA's.
function(loratrain_cuda_program name source)
  set_source_files_properties("${source}" PROPERTIES LANGUAGE CXX)
  add_executable(${name} "${source}")
  target_include_directories(${name} PRIVATE "${tests_dir}")
  target_link_libraries(${name} PRIVATE loratrain_backend loratrain_kernels CUDA::cudart ${ARGN})
  target_include_directories(${name} SYSTEM PRIVATE ${LORATRAIN_CUBLASLT_INCLUDES})
endfunction()

loratrain_cuda_program(test_cuda "${tests_dir}/backend/cuda_attention_test.cu" GTest::gtest)
target_sources(test_cuda PRIVATE "${tests_dir}/support/skipping_main.cpp")
add_test(NAME unit.cuda COMMAND test_cuda)
set_tests_properties(unit.cuda PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)

if(LORATRAIN_BENCH)
  loratrain_cuda_program(bench_attention "${tests_dir}/bench/bench_attention.cu")
  if(NOT LORATRAIN_BACKEND_ONLY)
    loratrain_cuda_program(bench_graph "${tests_dir}/bench/bench_graph.cpp" loratrain_app
                           loratrain_options)
  endif()
endif()
