#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "comm/mpi_session.h"
#include "config/job.h"

namespace loratrain {

/// This rank's backend on its share of the host: its processors, or the GPU of its number there.
/// `compute`: Plan::compute. `algorithm_file`: where the choices of GEMM algorithms are kept;
/// "" = nowhere. Throws InputError where the backend was not built.
std::unique_ptr<Backend> make_rank_backend(const MpiSession& mpi, BackendKind kind, DType compute,
                                           const std::string& algorithm_file = "");

}  // namespace loratrain
