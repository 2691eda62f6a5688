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

/// The replicas that a sweep may have, each planned once.

/// A sweep and its machine. It refers to its members, which outlive everything made from it.
struct SweepTask {
    const Job& job;
    const ModelSpec& model;
    std::span<const DatasetInfo> datasets;  ///< by DatasetId
    const Cluster& cluster;                 ///< its costs are ignored: they are of one shape only
    const TrialClasses& trials;
    SweepRules rules = {};
};

/// Replicas of a sweep, as make_plan() lays them out; each shape is planned once, with built-in
/// costs, for the 16 to 64 trials with most parameters. These make the augmented matrices as wide
/// as they get; other trials change little (scratch, the samples of a round).
class SweepShapes {
  public:
    explicit SweepShapes(const SweepTask& task);

    /// (lanes, stages) of replicas on `ranks` ranks, fewest lanes first. Lanes are powers of two
    /// that can share the model. Replicas that cannot hold the job's adapters are left out.
    std::vector<std::pair<std::int32_t, std::int32_t>> cuts(std::int32_t ranks) const;
    /// The same for all divisors of the cluster's ranks, fewest ranks first.
    std::vector<std::pair<std::int32_t, std::int32_t>> cuts() const;

    /// The replica with different sizes of microbatches: the job's size, else the usual tokens, and
    /// 1/8, 1/4 and 1/2 of them if they hold the longest sample. Smaller microbatches leave room
    /// for more trials. Empty if not even one trial fits.
    std::vector<SweepReplica> replicas(std::int32_t tensor, std::int32_t stages);

  private:
    std::vector<std::int64_t> sizes() const;
    Plan resident_if_fits(const Job& job, const Cluster& cluster) const;
    Plan plan_of(const Job& job, const Cluster& cluster) const;
    std::vector<SweepReplica> planned(std::int32_t tensor, std::int32_t stages) const;

    SweepTask task_;
    Job largest_;  ///< the job with its largest trials only
    Cluster cluster_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<SweepReplica>> known_;
};

}  // namespace loratrain
