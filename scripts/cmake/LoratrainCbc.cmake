# Target loratrain_cbc: the MILP solver COIN-OR CBC, optional; without it packing is greedy.

option(LORATRAIN_CBC "Use COIN-OR CBC to pack microbatches where it is found" ON)
add_library(loratrain_cbc INTERFACE)
set(LORATRAIN_CBC_USED OFF)
if(LORATRAIN_CBC)
  find_path(LORATRAIN_CBC_INCLUDE NAMES coin/CbcModel.hpp)
  set(found "${LORATRAIN_CBC_INCLUDE}")
  foreach(library Cbc Cgl OsiClp Clp Osi CoinUtils)
    find_library(LORATRAIN_${library}_LIBRARY NAMES ${library})
    if(NOT LORATRAIN_${library}_LIBRARY)
      set(found FALSE)
    endif()
    list(APPEND libraries ${LORATRAIN_${library}_LIBRARY})
  endforeach()
  if(found)
    set(LORATRAIN_CBC_USED ON)
    # The headers include each other without the prefix coin/.
    target_include_directories(loratrain_cbc SYSTEM INTERFACE ${LORATRAIN_CBC_INCLUDE}
                                                              ${LORATRAIN_CBC_INCLUDE}/coin)
    target_link_libraries(loratrain_cbc INTERFACE ${libraries})
    target_compile_definitions(loratrain_cbc INTERFACE LORATRAIN_HAVE_CBC)
  endif()
endif()
