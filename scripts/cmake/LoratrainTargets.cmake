# Compiler options shared by everything, and one static library per folder of src/.

add_library(loratrain_options INTERFACE)
target_compile_features(loratrain_options INTERFACE cxx_std_20)
target_include_directories(loratrain_options INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
target_compile_options(loratrain_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                            -Woverloaded-virtual -Wmissing-declarations>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of an overlap inside std::string operator+ that cannot happen (GCC bug 105651).
  # With AVX-512 it also compiles std::vector<int64_t>{1, 1, 0, 0} to 1, 1, 1, 1 unless it leaves
  # straight-line code unvectorised (seen with 12.2; loops are not affected).
  target_compile_options(loratrain_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -fno-tree-slp-vectorize>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What GCC's optimiser finds in std::string when it comes from a precompiled header, which it no
  # longer takes for a system's (seen with 12.2 and 13): sizes that cannot occur.
  target_compile_options(loratrain_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang says where it does not follow "omp simd" (a maximum of floats), and that the stable_sort of
  # libstdc++ 12 uses something deprecated.
  target_compile_options(loratrain_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-pass-failed -Wno-deprecated-declarations>)
endif()
if(LORATRAIN_UNITY)
  # A variable may have the name of something in another source; GCC takes a source that another one
  # includes for a header.
  target_compile_options(loratrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(loratrain_options INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()
if(LORATRAIN_WERROR)
  target_compile_options(loratrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# Vector code: for this machine's processor, or chosen when the program starts (base/vector_code.h).
# Sanitizers are not ready when the choice is made.
set(LORATRAIN_VECTOR_CODE_USED "plain")
if(LORATRAIN_NATIVE)
  set(LORATRAIN_VECTOR_CODE_USED "native")
  target_compile_options(loratrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
elseif(NOT LORATRAIN_SANITIZE)
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("
    template <int n>
    __attribute__((target_clones(\"default\", \"arch=x86-64-v3\", \"arch=x86-64-v4\")))
    void add(float* x) { for (int i = 0; i < n; ++i) x[i] += 1.0F; }
    int main() { float x[64] = {}; add<64>(x); return static_cast<int>(x[0]) - 1; }"
    LORATRAIN_HAS_TARGET_CLONES)
  if(LORATRAIN_HAS_TARGET_CLONES)
    set(LORATRAIN_VECTOR_CODE_USED "chosen at start")
    target_compile_definitions(loratrain_options INTERFACE LORATRAIN_TARGET_CLONES)
  endif()
endif()
if(LORATRAIN_SANITIZE)
  target_compile_options(loratrain_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LORATRAIN_SANITIZE} -fno-omit-frame-pointer
                              -fno-sanitize-recover=all>)
  target_link_options(loratrain_options INTERFACE -fsanitize=${LORATRAIN_SANITIZE})
  if(LORATRAIN_SANITIZE MATCHES "undefined" AND NOT LORATRAIN_SANITIZE_ALL)
    # The checks of every pointer take as long to compile as all others: kept in io, which reads files
    # of others. What is wrong in a test's own arithmetic is not looked for.
    set(checked "$<STREQUAL:$<TARGET_PROPERTY:NAME>,loratrain_io>")
    set(test "$<STREQUAL:$<TARGET_PROPERTY:SOURCE_DIR>,${PROJECT_SOURCE_DIR}/tests>")
    target_compile_options(loratrain_options INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${checked}>>:-fno-sanitize=null,alignment,vptr,object-size>
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,${test}>:-fno-sanitize=undefined>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND LORATRAIN_SANITIZE MATCHES "thread")
    # Boost.Asio's fences, which the sanitizer does not see.
    target_compile_options(loratrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# One precompiled header of the standard library for all modules, and one with GoogleTest for the
# tests: without them most of a build's time goes into reading these headers again for every file.
function(loratrain_precompile name)
  file(WRITE "${PROJECT_BINARY_DIR}/generated/${name}.cpp" "")
  add_library(${name} OBJECT "${PROJECT_BINARY_DIR}/generated/${name}.cpp")
  target_link_libraries(${name} PRIVATE loratrain_options)
  target_precompile_headers(${name} PRIVATE
    "${PROJECT_SOURCE_DIR}/scripts/cmake/standard_headers.h" ${ARGN})
endfunction()
loratrain_precompile(loratrain_headers)

# loratrain_unity(TARGET): compiles the sources of a target LORATRAIN_UNITY_SOURCES at a time where
# LORATRAIN_UNITY asks, so what they name in anonymous namespaces must differ within a module.
function(loratrain_unity target)
  if(NOT LORATRAIN_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${LORATRAIN_UNITY_SOURCES})
endfunction()

# loratrain_module(NAME [LINKS module...] [PRIVATE target...])
# All .cpp files below src/NAME and its subfolders, but those of the CUDA backend
# (LoratrainCuda.cmake), become the library loratrain_NAME.
function(loratrain_module name)
  cmake_parse_arguments(ARG "" "" "LINKS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/src/backend/cuda/")
  add_library(loratrain_${name} STATIC ${sources})
  foreach(link IN LISTS ARG_LINKS)
    target_link_libraries(loratrain_${name} PUBLIC loratrain_${link})
  endforeach()
  target_link_libraries(loratrain_${name} PUBLIC loratrain_options PRIVATE ${ARG_PRIVATE})
  if(NOT "OpenMP::OpenMP_CXX" IN_LIST ARG_PRIVATE)  # compiles with other options
    target_precompile_headers(loratrain_${name} REUSE_FROM loratrain_headers)
    loratrain_unity(loratrain_${name})
  endif()
endfunction()

# base/version.h's values: project version, git hash (with + when the tree is dirty), build type. A
# source package has the hash in a file (source_package.cmake.in).
function(loratrain_version_file)
  set(hash "")
  if(EXISTS "${PROJECT_SOURCE_DIR}/source_commit")
    file(STRINGS "${PROJECT_SOURCE_DIR}/source_commit" hash)
  else()
    find_package(Git QUIET)
    if(GIT_FOUND)
      execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty=+ --abbrev=12 --exclude=*
                      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE hash
                      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      # A commit makes a build configure again, so that the program names the one it is built from.
      execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD
                      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE log
                      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      cmake_path(ABSOLUTE_PATH log BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      if(EXISTS "${log}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${log}")
      endif()
    endif()
  endif()
  if(NOT hash)
    set(hash "unknown")
  endif()
  set(LORATRAIN_GIT_HASH "${hash}")
  set(LORATRAIN_GIT_HASH "${hash}" PARENT_SCOPE)
  configure_file("${PROJECT_SOURCE_DIR}/scripts/cmake/version_values.h.in"
                 "${PROJECT_BINARY_DIR}/generated/version_values.h")
  target_include_directories(loratrain_options INTERFACE "${PROJECT_BINARY_DIR}/generated")
endfunction()
