#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// What the adapters that are not finished have still to train.
struct WorkLeft {
    std::int32_t rounds = 0;  ///< at least so many, more where adapters wait for each other
    double tokens = 0.0;      ///< a step counts as the mean step of an epoch
};

/// Counts it from the steps taken and the lengths of the datasets. Root only.
class WorkCounter {
  public:
    /// The arguments outlive the counter.
    WorkCounter(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets);

    /// The arguments have got more adapters.
    void add_adapters();
    WorkLeft left(const RunState& state) const;

  private:
    const Job& job_;
    const Plan& plan_;
    const std::vector<DatasetInfo>& datasets_;
    std::vector<double> tokens_per_step_;  ///< per adapter
};

}  // namespace loratrain
