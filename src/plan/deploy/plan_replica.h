#pragma once

#include <span>
#include <vector>

#include "plan/deploy/candidates.h"
#include "plan/deploy/memory_hints.h"
#include "plan/plan_report.h"

namespace loratrain {

struct Deployment {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< search_layout.h
};

/// How the planner splits the layers of `inputs`.
LayerSplit layer_split(const DeploymentInputs& inputs);

/// By the rules of make_plan.h. Where nothing fits, the last candidate that was looked at: what it
/// lacks is what there is to say.
Deployment choose_deployment(const DeploymentInputs& inputs);

/// LoRA columns of every replica (make_plan.h).
struct LoraWidth {
    std::int32_t pad = 0;
    std::int32_t saved = 0;
};

/// Costs of a lane: those that sizes are chosen by, and those that may be measured.
struct LaneCosts {
    CostModel built_in;
    CostModel best_known;
};

/// What a replica is planned from; references outlive its planner.
struct ReplicaTask {
    const Job& job;
    const Plan& constants;  ///< without costs
    std::span<const DatasetInfo> datasets;
    const Workload& work;
    LaneCosts costs;
    LoraWidth width;
    const ReplicaPlan* former;  ///< whose sizes it has, or null
    ReplicaJob shape;           ///< of one
    bool one_of_several;
    std::uint64_t host_bytes = 0;  ///< as keep_layers() has it
    bool searches = true;          ///< as DeploymentInputs'
};

/// Plans one replica by the rules of choose_deployment.h. One of several need not take the longest
/// samples: where its microbatches are given shorter, or no longer ones fit, it is planned for
/// those that it takes.
class ReplicaPlanner {
  public:
    explicit ReplicaPlanner(const ReplicaTask& task);
    ReplicaPlanner(const ReplicaPlanner&) = delete;
    ReplicaPlanner& operator=(const ReplicaPlanner&) = delete;

    const Candidate& candidate() const { return deployment_.chosen; }
    const std::vector<LayoutTrial>& trials() const { return deployment_.trials; }
    const Job& job() const { return job_; }  ///< with what the replica has of its own
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
    std::vector<DatasetInfo> shortened_;  ///< where samples are too long for it
    Deployment deployment_;
};

}  // namespace loratrain
