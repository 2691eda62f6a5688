# The CUDA engine: library loratrain_kernels (kernels/) and, in loratrain_backend, src/backend/cuda.
# Sets LORATRAIN_CUDA_USED.

set(LORATRAIN_CUDA "AUTO" CACHE STRING "CUDA backend: AUTO (where nvcc and cuBLASLt are found), ON, OFF")
set_property(CACHE LORATRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)

set(LORATRAIN_CUDA_USED OFF)
if(LORATRAIN_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit QUIET)
  include(LoratrainWheels)
  if(CUDAToolkit_FOUND AND NOT TARGET CUDA::cublasLt)
    loratrain_wheel_folders(cublas_wheels "cu[0-9]*" cublas)
    find_library(LORATRAIN_CUBLASLT NAMES "libcublasLt.so.${CUDAToolkit_VERSION_MAJOR}"
                 HINTS ${cublas_wheels} PATH_SUFFIXES lib)
    find_path(LORATRAIN_CUBLASLT_INCLUDE NAMES cublasLt.h HINTS ${cublas_wheels}
              PATH_SUFFIXES include)
    if(LORATRAIN_CUBLASLT AND LORATRAIN_CUBLASLT_INCLUDE)
      add_library(CUDA::cublasLt UNKNOWN IMPORTED)
      set_target_properties(CUDA::cublasLt PROPERTIES
        IMPORTED_LOCATION "${LORATRAIN_CUBLASLT}"
        INTERFACE_INCLUDE_DIRECTORIES "${LORATRAIN_CUBLASLT_INCLUDE}")
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cublasLt)
    set(LORATRAIN_CUDA_USED ON)
    set(LORATRAIN_CUBLASLT_INCLUDES "$<TARGET_PROPERTY:CUDA::cublasLt,INTERFACE_INCLUDE_DIRECTORIES>")
  elseif(NOT LORATRAIN_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "LORATRAIN_CUDA is ${LORATRAIN_CUDA}, but nvcc or cuBLASLt was not found")
  endif()
endif()

if(LORATRAIN_CUDA_USED)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures to compile for")
    message(WARNING "CMAKE_CUDA_ARCHITECTURES was not given: compiling for 90 (Hopper)")
  endif()
  enable_language(CUDA)
  file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/*.cu")
  file(GLOB hopper_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/hopper/*.cu")
  file(GLOB delta_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/delta/*.cu")
  list(REMOVE_ITEM kernel_sources ${hopper_sources} ${delta_sources})
  # Instructions of compute capability 9.0 alone: of no use to GPUs before or after it.
  add_library(loratrain_kernels_hopper OBJECT ${hopper_sources})
  set_target_properties(loratrain_kernels_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
  # Kernels that use such instructions where they are compiled for them, and others elsewhere.
  set(delta_architectures ${CMAKE_CUDA_ARCHITECTURES})
  list(TRANSFORM delta_architectures REPLACE "^90(-real)?$" "90a-real")
  if("90" IN_LIST CMAKE_CUDA_ARCHITECTURES)
    list(APPEND delta_architectures 90-virtual)
  endif()
  add_library(loratrain_kernels_delta OBJECT ${delta_sources})
  set_target_properties(loratrain_kernels_delta PROPERTIES
    CUDA_ARCHITECTURES "${delta_architectures}")
  add_library(loratrain_kernels STATIC ${kernel_sources}
              $<TARGET_OBJECTS:loratrain_kernels_hopper>
              $<TARGET_OBJECTS:loratrain_kernels_delta>)
  foreach(kernels loratrain_kernels loratrain_kernels_hopper loratrain_kernels_delta)
    target_include_directories(${kernels} PUBLIC "${PROJECT_SOURCE_DIR}")
    # By option: CMake 3.25 does not know C++20 of nvcc.
    target_compile_options(${kernels} PRIVATE -std=c++20 -Xcompiler=-Wall,-Wextra)
    if(LORATRAIN_WERROR)
      target_compile_options(${kernels} PRIVATE -Werror=all-warnings)
    endif()
  endforeach()
  target_link_libraries(loratrain_kernels PUBLIC CUDA::cudart)
endif()

# Adds the CUDA backend to loratrain_backend.
function(loratrain_cuda_backend)
  if(NOT LORATRAIN_CUDA_USED)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cpp")
  target_sources(loratrain_backend PRIVATE ${sources})
  target_compile_definitions(loratrain_backend PRIVATE LORATRAIN_WITH_CUDA)
  target_link_libraries(loratrain_backend PRIVATE loratrain_kernels CUDA::cudart ${CMAKE_DL_LIBS})
  # Loaded by processes that use a GPU (cublaslt_library.h).
  target_include_directories(loratrain_backend SYSTEM PRIVATE ${LORATRAIN_CUBLASLT_INCLUDES})
  target_compile_definitions(loratrain_backend PRIVATE
    "LORATRAIN_CUBLASLT_FILE=\"$<TARGET_FILE:CUDA::cublasLt>\"")
  find_path(LORATRAIN_NVTX_INCLUDE NAMES nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(LORATRAIN_NVTX_INCLUDE)
    target_compile_definitions(loratrain_backend PRIVATE LORATRAIN_WITH_NVTX)
    target_include_directories(loratrain_backend SYSTEM PRIVATE ${LORATRAIN_NVTX_INCLUDE})
  else()
    message(STATUS "NVTX headers were not found: no ranges in profiles")
  endif()
endfunction()
