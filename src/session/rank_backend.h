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

/// Makes the backend of a rank, and records the memory that it took.

/// This rank's backend: on its share of the host's processors, or on the GPU with its number there.
/// `compute`: Plan::compute. `algorithm_file`: keeps the choices of GEMM algorithms; "" = no file.
/// InputError if the program was built without this backend.
std::unique_ptr<Backend> make_rank_backend(const MpiSession& mpi, BackendKind kind, DType compute,
                                           const std::string& algorithm_file = "");

/// Makes malloc return freed blocks of a MiB or more to the system at once, so that temporary
/// memory of loading and checkpoints does not stay resident beside what the plan counts.
void give_back_large_blocks();

/// Peak memory of every rank since `before`: of its backend with `others` (its messages), and of
/// its process. The root writes it to <run_dir>/memory.json; an error is only a warning.
/// Collective.
std::vector<MeasuredMemory> record_memory(const MpiSession& mpi, const std::string& run_dir,
                                          const Backend& backend, std::uint64_t others,
                                          const ResidentMemory& before);

/// Logs a line per rank with planned and measured memory. All workers have the same `plan`.
void log_memory(const Plan& plan, const std::vector<MeasuredMemory>& ranks);

}  // namespace loratrain
