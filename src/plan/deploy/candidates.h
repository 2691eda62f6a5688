#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "plan/deploy/workload.h"
#include "plan/plan.h"

namespace loratrain {

/// A deployment that a plan may get, and who trains from the start beside it.
struct Candidate {
    ReplicaPlan replica;
    std::vector<AdapterId> first_admitted;
};

/// What candidates are made from and compared by; kept by reference.
struct DeploymentInputs {
    const Job& job;
    const Plan& constants;  ///< the plan without replicas, first_admitted and memory
    std::span<const DatasetInfo> datasets;
    const Workload& work;
    const CostModel& built_in;  ///< sizes are chosen by it: measured costs differ between runs
    const ReplicaPlan* former;  ///< of the run that is continued, or null
    std::int32_t tensor = 1;    ///< lanes of a stage
    std::int32_t stages = 1;
    std::int32_t pad_columns = 0;
    std::int32_t saved_columns = 0;
    std::uint64_t host_bytes = 0;  ///< as keep_layers() has it
    bool searches = true;          ///< else the largest sizes that fit are taken
};

/// The constants with the candidate as the only replica; without memory.
Plan plan_with(const Plan& constants, const Candidate& candidate);

/// A candidate with the sizes of one job: as many in flight as stages, whole layers.
struct Attempt {
    Candidate candidate;
    bool fits = false;  ///< else it is what was looked at last: what it lacks is what is to be said
    bool is_full = false;  ///< beside all adapters that may train at once, in layers split by cost
};

/// Makes candidates by the rules of make_plan.h; `inputs` outlive it.
class Candidates {
  public:
    explicit Candidates(const DeploymentInputs& inputs);

    /// With the microbatches and the recomputation that `sizes`, the job with some of them given,
    /// leaves: beside all adapters that may train at once, or as many as fit.
    Attempt admitted(const Job& sizes) const;
    /// The same in layers split by cost alone, which `admitted` moves where they do not fit.
    Attempt by_cost(const Job& sizes) const;
    /// Whether all adapters that may train at once fit beside these sizes, both of which are given.
    bool hold_all(const Job& sizes) const;
    /// In the former stages instead, where there are as many.
    Attempt in_former_stages(const Job& sizes) const;
    /// Neighbours share layers (share_layers.h) where all adapters train from the start; the former
    /// stages, where there are as many. As it is where that does not fit.
    Candidate with_shared_layers(const Candidate& whole) const;
    /// With the layers that keep their activations and those whose go to the host, as the plan
    /// would have it in the end.
    Candidate completed(Candidate candidate) const;
    /// In one of so many parts of every rank's memory, with no layer kept but those that the job
    /// says.
    bool fits(const Candidate& candidate, std::uint64_t parts = 1) const;

    std::vector<StagePlan> split(std::int32_t stages, const AdapterLoads& loads,
                                 Recompute recompute) const;
    /// The former replica, where it has as many stages and lanes; else null.
    const ReplicaPlan* alike() const { return alike_; }

  private:
    using Adapters = std::vector<AdapterId>;
    using LayOut = std::function<Candidate(const Adapters&)>;

    std::vector<StagePlan> split_for(const Job& sizes, Recompute recompute) const;
    const std::vector<StagePlan>& shared_split(Recompute recompute) const;
    Candidate of_stages(std::vector<StagePlan> stages, const Adapters& adapters) const;
    Candidate sized(const Job& sizes, Candidate candidate) const;
    Candidate whole_layers(const Job& sizes, const Adapters& adapters) const;
    Candidate by_memory(const Job& sizes, Recompute recompute, const Adapters& adapters) const;
    bool has_fair_size(const Job& sizes, const Candidate& candidate) const;
    Attempt admit_most(const Job& sizes, const LayOut& lay_out) const;
    Adapters first_of_order(std::size_t count) const;

    const DeploymentInputs& in_;
    const Job& job_;
    std::vector<AdapterId> order_;  ///< in which they get to train
    const ReplicaPlan* alike_ = nullptr;
    /// By tokens of a microbatch: splits of whole layers that were asked for.
    mutable std::map<std::pair<std::int64_t, Recompute>, std::vector<StagePlan>> splits_;
    mutable std::map<Recompute, std::vector<StagePlan>> shared_splits_;  ///< likewise, shared ones
};

}  // namespace loratrain
