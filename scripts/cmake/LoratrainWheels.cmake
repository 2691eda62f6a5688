# LORATRAIN_NVIDIA_WHEELS: folders of NVIDIA's Python wheels (package `nvidia` of python3, which PyTorch
# brings), where CUDA libraries may be found that the system lacks. They hold only names with a
# version, for example libnccl.so.2.

set(LORATRAIN_NVIDIA_WHEELS "")
find_program(LORATRAIN_PYTHON NAMES python3)
if(LORATRAIN_PYTHON)
  execute_process(
    COMMAND ${LORATRAIN_PYTHON} -c "import nvidia; print(';'.join(nvidia.__path__))"
    OUTPUT_VARIABLE LORATRAIN_NVIDIA_WHEELS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

# loratrain_wheel_folders(VARIABLE package...): their folders, for HINTS with PATH_SUFFIXES lib
# include; cuBLAS is in cu13 and the like, or in a folder of its own.
function(loratrain_wheel_folders variable)
  set(folders "")
  foreach(wheel IN LISTS LORATRAIN_NVIDIA_WHEELS)
    foreach(package IN LISTS ARGN)
      file(GLOB found LIST_DIRECTORIES true "${wheel}/${package}")
      list(APPEND folders ${found})
    endforeach()
  endforeach()
  set(${variable} ${folders} PARENT_SCOPE)
endfunction()
