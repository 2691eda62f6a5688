#pragma once

#include <optional>

#include "bench/bench_data.h"
#include "comm/mpi_session.h"
#include "plan/number_types.h"
#include "plan/plan.h"
#include "session/job_inputs.h"

namespace loratrain {

/// What --precision stands for on --backend.
NumberTypes bench_types(const CommandLine::Bench& bench);

/// A planned job of adapters, equal but for their data, on random data and random weights.
struct BenchCase {
    /// Without `lora` no linear has adapters. `microbatch_tokens`: none = as --microbatch-tokens
    /// says. Collective.
    BenchCase(const CommandLine::Bench& bench, const MpiSession& mpi, const RandomData& data,
              bool lora, std::optional<std::int64_t> microbatch_tokens = {});

    /// Plans again with measured costs, which have to be equal on all ranks.
    void plan_with(const CostModel& costs);

    Job job;
    JobInputs inputs;
    Cluster cluster;
    Plan plan;  ///< with all adapters resident, also where the policy trains one at a time

  private:
    void make();
};

}  // namespace loratrain
