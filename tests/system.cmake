# The program as users run it: Python scripts (standard library only) that start loratrain under
# mpirun. One ctest per script; ranks are stated in the scripts.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

foreach(name early_signal no_flock failing_files wrong_products unusable_gpu)
  add_library(loratrain_${name} MODULE "${CMAKE_CURRENT_LIST_DIR}/support/${name}.c")
endforeach()

# loratrain_system_test(NAME TIMEOUT [label...]); label sanitize: scripts/test.sh also runs it under the
# sanitizers with LORATRAIN_FULL_TESTS=1. Another test may run beside each: most of their time goes into
# starting and ending processes. TESTS_NAME: what to run of test_NAME.py, all where not set.
function(loratrain_system_test name timeout)
  add_test(NAME system.${name}
           COMMAND ${Python3_EXECUTABLE} run_tests.py test_${name}${TESTS_${name}}
           WORKING_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/system")
  set_tests_properties(system.${name} PROPERTIES
    LABELS "system;${ARGN}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:malloc_context_size=3;LORATRAIN_BIN=$<TARGET_FILE:loratrain>;LORATRAIN_MPIEXEC=${MPIEXEC_EXECUTABLE};\
LORATRAIN_EARLY_SIGNALS=$<TARGET_FILE:loratrain_early_signal>;\
LORATRAIN_NO_FLOCK=$<TARGET_FILE:loratrain_no_flock>;\
LORATRAIN_FAILING_FILES=$<TARGET_FILE:loratrain_failing_files>;\
LORATRAIN_UNUSABLE_GPU=$<TARGET_FILE:loratrain_unusable_gpu>;\
LORATRAIN_WRONG_PRODUCTS=$<TARGET_FILE:loratrain_wrong_products>")
endfunction()

if(LORATRAIN_SANITIZE)
  set(TESTS_golden .Golden.test_qwen3)  # the other families take the same code
endif()
# Longest first.
loratrain_system_test(resume 600)
loratrain_system_test(bad_input 600 sanitize)
loratrain_system_test(slurm 1500)
loratrain_system_test(faults 600)
loratrain_system_test(strikes 600)
loratrain_system_test(stopping 600)
loratrain_system_test(sweep 600)
loratrain_system_test(workers 600)
loratrain_system_test(inbox 900)
loratrain_system_test(watchdog 600)
loratrain_system_test(hosts 600)
loratrain_system_test(invariance 600)
loratrain_system_test(live 600)
loratrain_system_test(install 300)
loratrain_system_test(quickstart 300)
loratrain_system_test(golden 900 sanitize)
loratrain_system_test(quantized 300)
loratrain_system_test(backends 300)
loratrain_system_test(policies 300)
loratrain_system_test(first_use 300)
loratrain_system_test(pages 600)
loratrain_system_test(dry_run 600)
loratrain_system_test(memory 600)
loratrain_system_test(recompute 300)
loratrain_system_test(hybrids 600)
loratrain_system_test(latent 600)
loratrain_system_test(offload 300)
loratrain_system_test(residency 300)
loratrain_system_test(report 300)
loratrain_system_test(account 300)
loratrain_system_test(evaluation 600)
loratrain_system_test(generation 300)
loratrain_system_test(preferences 300 sanitize)
loratrain_system_test(rollouts 300 sanitize)
loratrain_system_test(rewards 600)
loratrain_system_test(step_exports 600)
loratrain_system_test(arrivals 900)
loratrain_system_test(files 120)
loratrain_system_test(peft_export 600)
loratrain_system_test(merged_forms 600)
loratrain_system_test(gpu 900)
loratrain_system_test(gpu_lanes 600)
loratrain_system_test(gpu_quantized 600)
loratrain_system_test(real_model 600)
loratrain_system_test(costs 300)
loratrain_system_test(tensor_parallel 900)
loratrain_system_test(replicas 900)
# Both install from one build, which keeps one list of what it installed.
set_tests_properties(system.install system.slurm PROPERTIES RESOURCE_LOCK installed_files)
set_tests_properties(system.bad_input PROPERTIES COST 100)  # begins before the tests of MPI
