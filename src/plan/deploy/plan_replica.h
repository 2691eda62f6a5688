#pragma once

#include <span>
#include <vector>

#include "plan/deploy/candidates.h"
#include "plan/deploy/memory_hints.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Plans one replica: stages, microbatch size, recomputation.

/// The chosen replica, and the layouts that were tried.
struct Deployment {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< search_layout.h
    bool falls_behind = false;        ///< likewise
};

/// The function that splits the layers of `inputs` as the planner does.
LayerSplit layer_split(const DeploymentInputs& inputs);

/// Chooses the replica by the rules of make_plan.h. If nothing fits, returns the last candidate
/// tried: what it lacks goes into the message.
Deployment choose_deployment(const DeploymentInputs& inputs);

/// LoRA columns of every replica: ReplicaPlan's pad_columns and saved_columns (make_plan.h).
struct LoraWidth {
    std::int32_t pad = 0;
    std::int32_t saved = 0;
};

/// Costs of a lane: `built_in` chooses sizes; `best_known` may be measured.
struct LaneCosts {
    CostModel built_in;
    CostModel best_known;
};

/// What a replica is planned from. References must outlive its planner.
struct ReplicaTask {
    const Job& job;
    const Plan& constants;  ///< without costs
    std::span<const DatasetInfo> datasets;
    const Workload& work;
    LaneCosts costs;
    LoraWidth width;
    const ReplicaPlan* former;  ///< of the run that is resumed, whose sizes are kept, or null
    ReplicaJob shape;           ///< of one replica
    bool one_of_several;
    std::uint64_t host_bytes = 0;  ///< as in keep_layers()
    bool searches = true;          ///< as in DeploymentInputs
    double least_speed = 0.0;      ///< likewise
};

/// Plans one replica by the rules of choose_deployment(). One of several replicas need not take the
/// longest samples. If its given microbatches are shorter, or longer ones do not fit, it is planned
/// for the samples that it can take.
class ReplicaPlanner {
  public:
    explicit ReplicaPlanner(const ReplicaTask& task);
    ReplicaPlanner(const ReplicaPlanner&) = delete;
    ReplicaPlanner& operator=(const ReplicaPlanner&) = delete;

    const Candidate& candidate() const { return deployment_.chosen; }
    const std::vector<LayoutTrial>& trials() const { return deployment_.trials; }
    bool falls_behind() const { return deployment_.falls_behind; }
    const Job& job() const { return job_; }  ///< with the replica's own keys
    const CostModel& costs() const { return constants_.costs; }
    const MicrobatchLoad& usual_load() const { return work_.usual.total; }
    std::int64_t longest_sample() const { return work_.longest_sample; }
    LayerSplit split() const;

  private:
    DeploymentInputs inputs() const;
    void limit_samples();
    std::int64_t most_that_fits() const;

    ReplicaTask task_;
    Job job_;
    Plan constants_;
    Workload work_;
    std::vector<DatasetInfo> shortened_;  ///< if samples are too long for the replica
    Deployment deployment_;
};

}  // namespace loratrain
