#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// A sweep and the machine that is to train it; referred to, so all outlive what is made from it.
struct SweepTask {
    const Job& job;
    const ModelSpec& model;
    std::span<const DatasetInfo> datasets;  ///< by DatasetId
    const Cluster& cluster;                 ///< its costs do not count: they are of one shape alone
    const TrialClasses& trials;
    SweepRules rules = {};
};

/// Replicas of a sweep as make_plan lays them out, one at a time, each planned once: with built-in
/// costs, for the 16 to 64 trials that have the most parameters, enough to make the augmented
/// matrices as wide as they get. What the others change of a replica (scratch, the samples of a
/// round) is little.
class SweepShapes {
  public:
    explicit SweepShapes(const SweepTask& task);

    /// Lanes and stages of replicas on so many ranks, fewest lanes first: powers of two of lanes
    /// that can share the model.
    std::vector<std::pair<std::int32_t, std::int32_t>> cuts(std::int32_t ranks) const;
    /// Those of all numbers of ranks that divide the cluster's, fewest ranks first.
    std::vector<std::pair<std::int32_t, std::int32_t>> cuts() const;

    /// The replica with microbatches of every size that is worth a look: what the job says, else
    /// the usual tokens and an eighth, a quarter and half of them that hold the longest sample: the
    /// smaller, the more trials fit beside. Empty where not even one trial fits.
    std::vector<SweepReplica> replicas(std::int32_t tensor, std::int32_t stages);

  private:
    std::vector<std::int64_t> sizes() const;
    Plan resident_if_fits(const Job& job, const Cluster& cluster) const;
    Plan plan_of(const Job& job, const Cluster& cluster) const;
    std::vector<SweepReplica> planned(std::int32_t tensor, std::int32_t stages) const;

    SweepTask task_;
    Job largest_;  ///< the job with the largest trials alone
    Cluster cluster_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<SweepReplica>> known_;
};

}  // namespace loratrain
