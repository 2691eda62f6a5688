#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/system.h"
#include "comm/mpi_session.h"
#include "config/job.h"
#include "plan/plan.h"
#include "report/run_record.h"

namespace loratrain {

/// This rank's backend on its share of the host: its processors, or the GPU of its number there.
/// `compute`: Plan::compute. `algorithm_file`: where the choices of GEMM algorithms are kept;
/// "" = nowhere. Throws InputError where the backend was not built.
std::unique_ptr<Backend> make_rank_backend(const MpiSession& mpi, BackendKind kind, DType compute,
                                           const std::string& algorithm_file = "");

/// Lets freed blocks of a MiB or more go back to the system at once, so that the temporary ones of
/// loading and checkpointing do not stay resident beside what the plan counts.
void give_back_large_blocks();

/// What every rank's backend with `others`, its messages, and its process have taken at most since
/// `before`; the root writes it to <run_dir>/memory.json. That it cannot be written is a warning.
/// Collective.
std::vector<MeasuredMemory> record_memory(const MpiSession& mpi, const std::string& run_dir,
                                          const Backend& backend, std::uint64_t others,
                                          const ResidentMemory& before);

/// A line a rank: planned and taken. Of workers all are as `plan` says.
void log_memory(const Plan& plan, const std::vector<MeasuredMemory>& ranks);

}  // namespace loratrain
