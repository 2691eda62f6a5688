#pragma once

#include <optional>

#include "bench/bench_data.h"
#include "comm/mpi_session.h"
#include "plan/plan.h"
#include "session/job_inputs.h"

namespace loratrain {

/// The job that a bench trains.

/// Number types of --precision on --backend.
NumberTypes bench_types(const CommandLine::Bench& bench);

/// A planned job on random data and random weights; its adapters differ in their data alone.
struct BenchCase {
    /// `lora` false: no linear has adapters. `microbatch_tokens`: default --microbatch-tokens.
    /// Collective.
    BenchCase(const CommandLine::Bench& bench, const MpiSession& mpi, const RandomData& data,
              bool lora, std::optional<std::int64_t> microbatch_tokens = {});

    /// Plans again with measured costs, which must be equal on all ranks.
    void plan_with(const CostModel& costs);

    Job job;
    JobInputs inputs;
    Cluster cluster;
    /// All adapters are resident, even if the policy trains one at a time. InputError if the memory
    /// holds fewer.
    Plan plan;

  private:
    void make();
};

}  // namespace loratrain
