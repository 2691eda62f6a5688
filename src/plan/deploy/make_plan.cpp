#include "plan/deploy/make_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/cost_model.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/check_deployment.h"
#include "plan/deploy/choose_deployment.h"
#include "plan/memory/memory_model.h"
#include "plan/number_types.h"
#include "plan/place.h"
#include "plan/schedule/admission.h"

namespace loratrain {

namespace {

/// Sum of ranks in a microbatch beyond which segments are faster than the augmented matrix.
std::int32_t widest_pad(BackendKind backend) {
    return backend == BackendKind::cuda ? 512 : 128;
}

std::string_view device_of(const Cluster& cluster) {
    if (!cluster.device.empty()) return cluster.device;
    return cluster.backend == BackendKind::cuda ? "h100" : "cpu";
}

/// Most adapters in a microbatch of training.
std::size_t most_segments(const Job& job) {
    return job.schedule.policy == SchedulePolicy::mlora ? 1 : most_admitted(job);
}

struct LoraWidth {
    std::int32_t pad = 0;
    std::int32_t saved = 0;
};

LoraWidth lora_width(const Job& job, BackendKind backend) {
    std::vector<std::int32_t> ranks;
    for (const AdapterJob& adapter : job.adapters) ranks.push_back(adapter.r);
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    const auto columns = [&] {
        return padded_columns(std::accumulate(ranks.begin(), ranks.end(), 0));
    };
    const std::int32_t compact = padded_columns(ranks.front());
    const std::int32_t widest = widest_pad(backend);
    if (columns() > free_columns) ranks.resize(std::min(ranks.size(), most_segments(job)));
    LoraWidth width;
    width.pad = compact <= widest ? std::min(columns(), widest) : 0;
    width.saved = std::max(width.pad, compact);
    return width;
}

class Planner {
  public:
    Planner(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
            const Cluster& cluster, const Plan* former)
        : job_(job),
          model_(model),
          datasets_(datasets),
          cluster_(cluster),
          former_(former),
          types_(number_types(job.model.precision, cluster.backend)),
          checks_(job, model, job.path, problems_) {}

    PlannedJob run() {
        if (job_.parallel.deployment.empty()) {
            check_stages();
        } else {
            check_deployment(job_, model_, cluster_, problems_);
        }
        check_data();
        problems_.throw_if_any();
        const Workload work = workload_of(job_, cluster_.backend, datasets_);
        const CostModel built_in =
            built_in_costs(model_, types_.compute, device_of(cluster_), tensor());
        const Plan constants = constants_of(built_in);
        problems_.throw_if_any();
        const LoraWidth width = lora_width(job_, cluster_.backend);
        const ReplicaPlan* former = former_ ? &only_replica(*former_).replica : nullptr;
        const DeploymentInputs inputs{job_,   constants, datasets_, work,      built_in,
                                      former, tensor(),  stages(),  width.pad, width.saved};
        PlannedJob planned = assembled(inputs, choose_deployment(inputs));
        problems_.throw_if_any();
        return planned;
    }

  private:
    std::string where(std::string_view key) const { return cat(job_.path, ": ", key); }

    std::int32_t tensor() const {
        const auto& deployment = job_.parallel.deployment;
        return deployment.empty() ? 1 : deployment.front().tensor;
    }

    std::int32_t stages() const {
        const auto& deployment = job_.parallel.deployment;
        if (!deployment.empty()) return deployment.front().stages;
        return job_.parallel.pipeline_stages.value_or(cluster_.ranks);
    }

    void check_stages() {
        const bool chosen = job_.parallel.pipeline_stages.has_value();
        const auto layers = static_cast<int>(model_.layers);
        const int stages = this->stages();
        const std::string key = where("parallel.pipeline_stages");
        if (stages < 1) problems_.add(key, cat(stages, " stages"), "use at least 1, or auto");
        if (stages > layers) {
            problems_.add(
                key, cat(stages, " stages, but the model has ", layers, " layers"),
                chosen ? cat("use at most ", layers) : cat("start at most ", layers, " ranks"));
        }
        if (stages > cluster_.ranks) {
            problems_.add(key, cat(stages, " stages, but only ", cluster_.ranks, " ranks"),
                          cat("start ", stages, " ranks (mpirun -np ", stages, ")"));
        }
        if (stages >= 1 && stages < cluster_.ranks) {
            problems_.add(key,
                          cat(cluster_.ranks - stages, " of ", cluster_.ranks,
                              " ranks would stay unused by ", stages, " stages"),
                          cat("start ", stages, " ranks, or set pipeline_stages to auto"));
        }
    }

    void check_data() {
        const std::int64_t most =
            job_.parallel.microbatch_tokens.value_or(std::numeric_limits<std::int64_t>::max());
        for (const DatasetId id : used_datasets(job_)) {
            checks_.dataset(id, datasets_[index(id)], most);
        }
        for (const AdapterJob& adapter : job_.adapters) checks_.rank(adapter);
    }

    Plan constants_of(const CostModel& built_in) {
        Plan plan;
        plan.model = model_;
        plan.backend = cluster_.backend;
        plan.compute = types_.compute;
        plan.weights = types_.weights;
        plan.bytes_per_rank = cluster_.bytes_per_rank;
        plan.costs = cluster_.costs.value_or(built_in);
        for (const AdapterJob& adapter : job_.adapters) {
            plan.adapters.push_back(checks_.plan(adapter, datasets_[index(adapter.dataset)]));
        }
        plan.adapter_capacity = static_cast<std::int32_t>(plan.adapters.size()) + spare_adapters;
        plan.samples.shortest = std::numeric_limits<std::int64_t>::max();
        for (const DatasetId id : used_datasets(job_)) widen(plan.samples, datasets_[index(id)]);
        plan.samples.per_round = samples_per_round(job_, plan);
        return plan;
    }

    PlannedJob assembled(const DeploymentInputs& inputs, const Deployment& deployment) {
        PlannedJob planned{plan_with(inputs.constants, deployment.chosen), {}};
        Plan& plan = planned.plan;
        number_ranks(plan.replicas);
        const ReplicaView view = only_replica(plan);
        for (std::size_t s = 0; s < view.replica.stages.size(); ++s) {
            const MemoryPlan memory = stage_memory(job_, view, s);
            plan.memory.insert(plan.memory.end(), static_cast<std::size_t>(view.replica.tensor),
                               memory);
        }
        planned.report.trials = deployment.trials;
        planned.report.fitting = fitting_tokens(job_, view, inputs.work.longest_sample);
        check_memory(inputs, view, planned.report.fitting);
        return planned;
    }

    void check_memory(const DeploymentInputs& inputs, const ReplicaView& view,
                      const FittingTokens& fitting) {
        if (cluster_.bytes_per_rank == 0) return;
        std::string hint;
        for (const StagePlan& stage : view.replica.stages) {
            const MemoryPlan& memory = view.plan.memory[static_cast<std::size_t>(stage.rank)];
            if (memory.total() <= cluster_.bytes_per_rank) continue;
            if (hint.empty()) {
                hint = memory_hint(job_, view, fitting, inputs.work.longest_sample,
                                   layer_split(inputs));
            }
            problems_.add(
                where("parallel"),
                cat("rank ", stage.rank, " needs ", human_bytes(memory.total()), " (weights ",
                    human_bytes(memory.weights), ", adapters ", human_bytes(memory.adapters),
                    ", activations ", human_bytes(memory.activations), ", workspace ",
                    human_bytes(memory.workspace), ", engine ", human_bytes(memory.engine),
                    "), but has ", human_bytes(cluster_.bytes_per_rank), ", ",
                    human_bytes(memory.total() - cluster_.bytes_per_rank), " too little"),
                hint);
        }
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    const Plan* former_;
    NumberTypes types_;
    Problems problems_;
    AdapterChecks checks_;
};

}  // namespace

PlannedJob plan_job(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                    const Cluster& cluster, const Plan* former) {
    LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
    LORATRAIN_CHECK(!job.adapters.empty(), "a job has at least one adapter");
    LORATRAIN_CHECK(cluster.backend != BackendKind::automatic, "the backend is chosen before");
    return Planner(job, model, datasets, cluster, former).run();
}

Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster, const Plan* former) {
    return plan_job(job, model, datasets, cluster, former).plan;
}

}  // namespace loratrain
