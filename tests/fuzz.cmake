# Mutated inputs for everything that is read (fuzz/main.cpp): a fixed number of cases from a fixed seed;
# LORATRAIN_FUZZ_SECONDS in the environment gives it a time instead, of the processor: CI a minute under
# the sanitizers, others hours.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/fuzz/*.cpp")
add_executable(fuzz_inputs ${sources})
target_include_directories(fuzz_inputs PRIVATE "${CMAKE_CURRENT_LIST_DIR}")
target_link_libraries(fuzz_inputs PRIVATE loratrain_train loratrain_report loratrain_hdf5
                                          nlohmann_json::nlohmann_json)
loratrain_unity(fuzz_inputs)
add_test(NAME fuzz.inputs COMMAND fuzz_inputs)
set_tests_properties(fuzz.inputs PROPERTIES LABELS "fuzz;sanitize" TIMEOUT 1500 COST 90
                     ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:malloc_context_size=3;OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
