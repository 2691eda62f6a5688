#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "plan/deploy/workload.h"
#include "plan/plan.h"

namespace loratrain {

/// Replicas that the planner compares.

/// A replica that a plan may get, and the adapters that train on it from the start.
struct Candidate {
    ReplicaPlan replica;
    std::vector<AdapterId> first_admitted;
};

/// What candidates are made from and compared by. References must outlive the users.
struct DeploymentInputs {
    const Job& job;
    const Plan& constants;  ///< the plan without replicas, first_admitted and memory
    std::span<const DatasetInfo> datasets;
    const Workload& work;
    const CostModel& built_in;  ///< chooses sizes: measured costs differ between runs
    const ReplicaPlan* former;  ///< of the run that is resumed, or null
    std::int32_t tensor = 1;    ///< lanes of a stage
    std::int32_t stages = 1;
    std::int32_t pad_columns = 0;
    std::int32_t saved_columns = 0;
    std::uint64_t host_bytes = 0;  ///< as in keep_layers()
    bool searches = true;          ///< false: the largest sizes that fit are taken
    double least_speed = 0.0;      ///< tokens a second, below which no layout is of interest
};

/// `constants` with the candidate as the only replica; without memory.
Plan plan_with(const Plan& constants, const Candidate& candidate);

/// A candidate with the sizes of one job: whole layers, as many microbatches in flight as stages.
struct Attempt {
    Candidate candidate;
    bool fits = false;     ///< false: the last candidate tried; what it lacks goes into the message
    bool is_full = false;  ///< all adapters that may train at once fit, in layers split by cost
};

/// Makes candidates by the rules of make_plan.h. `inputs` must outlive the object.
class Candidates {
  public:
    explicit Candidates(const DeploymentInputs& inputs);

    /// A candidate with the microbatches and the recomputation that `sizes` leaves; `sizes` is the
    /// job with some sizes given. It admits all adapters that may train at once, or as many as fit.
    /// Layers are split by cost, or moved to other stages if they do not fit.
    Attempt admitted(const Job& sizes) const;
    /// As admitted(), but layers are split by cost alone.
    Attempt by_cost(const Job& sizes) const;
    /// Whether all adapters that may train at once fit with `sizes`, which gives both
    /// microbatch_tokens and recompute.
    bool hold_all(const Job& sizes) const;
    /// As admitted(), but in the stages of the former replica. Empty without such a replica
    /// (alike()).
    Attempt in_former_stages(const Job& sizes) const;
    /// `whole` with the stages of the former replica, if there is one (alike()) and it fits.
    /// Otherwise, if all adapters train from the start, with layers shared by neighbouring stages
    /// (partition_layers.h). Returns `whole` if that does not fit.
    Candidate with_shared_layers(const Candidate& whole) const;
    /// The candidate with its kept and offloaded layers, as in the final plan (keep_layers.h).
    Candidate completed(Candidate candidate) const;
    /// Whether the candidate fits into bytes_per_rank / `parts` of every rank. No layers keep their
    /// activations but those that the job names.
    bool fits(const Candidate& candidate, std::uint64_t parts = 1) const;

    std::vector<StagePlan> split(std::int32_t stages, const AdapterLoads& loads,
                                 Recompute recompute) const;
    /// The former replica if it has as many stages and lanes, otherwise null.
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
    std::vector<AdapterId> order_;  ///< in which adapters are admitted
    const ReplicaPlan* alike_ = nullptr;
    /// Splits of whole layers made so far, by tokens of a microbatch and recomputation.
    mutable std::map<std::pair<std::int64_t, Recompute>, std::vector<StagePlan>> splits_;
    /// Splits with shared layers made so far, by recomputation.
    mutable std::map<Recompute, std::vector<StagePlan>> shared_splits_;
};

}  // namespace loratrain
