# NCCL for loratrain_comm, where the CUDA backend is built and NCCL is found.
# Sets LORATRAIN_NCCL_USED.

set(LORATRAIN_NCCL_USED OFF)
if(LORATRAIN_CUDA_USED)
  loratrain_wheel_folders(nccl_wheels nccl)
  find_library(LORATRAIN_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${nccl_wheels} PATH_SUFFIXES lib)
  find_path(LORATRAIN_NCCL_INCLUDE NAMES nccl.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${nccl_wheels} PATH_SUFFIXES include)
  if(LORATRAIN_NCCL_LIBRARY AND LORATRAIN_NCCL_INCLUDE)
    set(LORATRAIN_NCCL_USED ON)
    target_compile_definitions(loratrain_comm PRIVATE LORATRAIN_WITH_NCCL)
    target_include_directories(loratrain_comm SYSTEM PRIVATE ${LORATRAIN_NCCL_INCLUDE})
    target_link_libraries(loratrain_comm PRIVATE ${LORATRAIN_NCCL_LIBRARY} CUDA::cudart)
  else()
    message(STATUS "NCCL was not found: one GPU per job")
  endif()
endif()
