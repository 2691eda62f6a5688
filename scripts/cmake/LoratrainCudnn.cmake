# Target loratrain_cudnn and variable LORATRAIN_CUDNN_USED: cuDNN's fused attention for the CUDA
# backend. Needs cuDNN 9 and the headers of cudnn-frontend 1.x (Python wheel nvidia-cudnn-frontend,
# folder include/, or its repository): -DCUDNN_FRONTEND_INCLUDE=DIR. Without them the target is
# empty and the kernels of this program do the work.

add_library(loratrain_cudnn INTERFACE)
set(LORATRAIN_CUDNN_USED OFF)

find_path(CUDNN_FRONTEND_INCLUDE NAMES cudnn_frontend.h)
if(CUDNN_FRONTEND_INCLUDE)
  loratrain_wheel_folders(cudnn_wheels cudnn)
  loratrain_wheel_folders(nvrtc_wheels "cu[0-9]*" cuda_nvrtc)
  set(cudnn_hints ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} ${cudnn_wheels})
  find_path(CUDNN_INCLUDE NAMES cudnn_graph.h HINTS ${cudnn_hints} PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${cudnn_hints}
               PATH_SUFFIXES lib lib64)
  find_library(LORATRAIN_NVRTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 NAMES_PER_DIR
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${nvrtc_wheels} PATH_SUFFIXES lib)
  if(CUDNN_INCLUDE AND CUDNN_LIBRARY AND LORATRAIN_NVRTC)
    set(LORATRAIN_CUDNN_USED ON)
    target_include_directories(loratrain_cudnn SYSTEM INTERFACE
                               ${CUDNN_FRONTEND_INCLUDE} ${CUDNN_INCLUDE})
    target_link_libraries(loratrain_cudnn INTERFACE ${CUDNN_LIBRARY} ${LORATRAIN_NVRTC}
                          ${CMAKE_DL_LIBS})
    target_compile_definitions(loratrain_cudnn INTERFACE LORATRAIN_WITH_CUDNN
                               CUDNN_FRONTEND_SKIP_JSON_LIB)
  endif()
endif()
message(STATUS "cuDNN attention: ${LORATRAIN_CUDNN_USED} (headers ${CUDNN_INCLUDE}, library"
               " ${CUDNN_LIBRARY}, frontend ${CUDNN_FRONTEND_INCLUDE})")
