# Checks of the sources, and the tests of the scripts.

function(loratrain_script_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS script TIMEOUT 120 SKIP_RETURN_CODE 77)
endfunction()

loratrain_script_test(lint.layers ${Python3_EXECUTABLE} scripts/check_layers.py)
loratrain_script_test(lint.names ${Python3_EXECUTABLE} scripts/check_names.py)
loratrain_script_test(lint.citations ${Python3_EXECUTABLE} scripts/check_citations.py)
loratrain_script_test(lint.prose ${Python3_EXECUTABLE} scripts/check_prose.py)
loratrain_script_test(lint.format ${Python3_EXECUTABLE} scripts/check_format.py)
loratrain_script_test(python.scripts "${PROJECT_SOURCE_DIR}/scripts/test_python.sh"
                      -m unittest discover -s tests/python)

# Sources of src/ on their own, by clang, which the build does not use: of all of them 20 processor minutes, so that
# scripts/test.sh takes every fourth, others for each commit, and that with LORATRAIN_STRICT=1 alone. With
# LORATRAIN_FULL_TESTS=1 too, clang and GCC parse all sources.
function(loratrain_source_test name label)
  loratrain_script_test(lint.sources_${name} ${Python3_EXECUTABLE} scripts/check_sources.py -j 1 ${ARGN})
  set_tests_properties(lint.sources_${name} PROPERTIES LABELS ${label} TIMEOUT 3600)
endfunction()
loratrain_source_test(clang++-19 strict_quick --quick --under src --one-of 4 clang++-19)
loratrain_source_test(clang++-19_whole strict_whole clang++-19)
loratrain_source_test(g++_whole strict_whole g++)
