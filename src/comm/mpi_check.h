#pragma once

#include <mpi.h>

namespace loratrain {

/// Throws Error with the expression and MPI's own text.
[[noreturn]] void fail_mpi(int code, const char* expression, const char* file, int line);

}  // namespace loratrain

#define MPI_CHECK(call)                                                           \
    do {                                                                          \
        const int loratrain_mpi_code = (call);                                    \
        if (loratrain_mpi_code != MPI_SUCCESS) {                                  \
            ::loratrain::fail_mpi(loratrain_mpi_code, #call, __FILE__, __LINE__); \
        }                                                                         \
    } while (false)
