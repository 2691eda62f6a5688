#include "plan/deploy/make_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"
#include "plan/cost/host_links.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/check_deployment.h"
#include "plan/deploy/check_precision.h"
#include "plan/deploy/join_products.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/memory_hints.h"
#include "plan/deploy/plan_replica.h"
#include "plan/deploy/plan_streaming.h"
#include "plan/deploy/text_batches.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"
#include "plan/schedule/admission_rules.h"

namespace loratrain {

namespace {

/// Most adapters in a microbatch of training.
std::size_t most_segments(const Job& job) {
    return job.schedule.policy == SchedulePolicy::mlora ? 1 : most_admitted(job);
}

LoraWidth lora_width(const Job& job, BackendKind backend) {
    std::vector<std::int32_t> ranks;
    for (const AdapterJob& adapter : job.adapters) ranks.push_back(adapter.largest_rank());
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    const auto columns = [&] {
        return padded_columns(std::accumulate(ranks.begin(), ranks.end(), 0));
    };
    const std::int32_t compact = padded_columns(ranks.front());
    // Sum of ranks in a microbatch beyond which segments are faster than the augmented matrix.
    const std::int32_t widest = backend == BackendKind::cuda ? 512 : 128;
    if (columns() > free_columns) ranks.resize(std::min(ranks.size(), most_segments(job)));
    LoraWidth width;
    width.pad = compact <= widest ? std::min(columns(), widest) : 0;
    width.saved = std::max(width.pad, compact);
    return width;
}

class Planner {
  public:
    /// Of a job whose layers stream: chosen for that, or as for any job; tried is a plan that is
    /// not to be carried out, however much of the host's memory it takes.
    enum class Sizes : std::uint8_t { searched, as_given, tried };

    Planner(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
            const Cluster& cluster, const Plan* former, Sizes sizes = Sizes::searched,
            double least_speed = 0.0)
        : job_(job),
          model_(model),
          datasets_(datasets),
          cluster_(cluster),
          former_(former),
          sizes_(sizes),
          least_speed_(least_speed),
          types_(number_types(job.model.precision, cluster.backend)),
          checks_(job, model, job.path, problems_) {
        LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
        LORATRAIN_CHECK(!job.adapters.empty(), "a job has at least one adapter");
        LORATRAIN_CHECK(cluster.backend != BackendKind::automatic, "the backend is chosen before");
    }

    PlannedJob run() {
        check_layer_counts(job_, model_, problems_);
        const auto& given = job_.parallel.deployment;  // its counts may be of any size
        if (given.empty()) check_stages();
        if (!given.empty()) check_deployment(job_, model_, cluster_, problems_);
        Plan constants = checked_constants(given.empty() ? replicas() : given);
        const Workload work =
            workload_of(job_, model_, cluster_.backend, datasets_, usual_tokens(constants));
        PlannedJob planned = planned_with(constants, work);
        if (!problems_.empty() && constants.fp8_linears && !constants.fp8_one_order) {
            problems_ = {};
            constants.fp8_one_order = true;
            planned = planned_with(constants, work);
        }
        const bool goes_on = former_ != nullptr && streams(*former_);
        if (auto streaming = with_streaming(problems_.empty() && !goes_on)) return *streaming;
        problems_.throw_if_any();
        if (former_ == nullptr && may_gain_by_streaming(job_, planned, work.wanted_tokens())) {
            auto streaming = with_streaming(false, speed(planned.plan));
            if (streaming && speed(streaming->plan) > speed(planned.plan)) return *streaming;
        }
        return planned;
    }

    Plan before_deployment() {
        Plan plan = checked_constants({});
        const LoraWidth width = lora_width(job_, cluster_.backend);
        ReplicaPlan& replica = plan.replicas.emplace_back();
        replica.pad_columns = width.pad;
        replica.saved_columns = width.saved;
        const std::vector<AdapterClaim> claims(job_.adapters.size());
        plan.first_admitted = admission_order(job_, claims);
        plan.first_admitted.resize(std::min(plan.first_admitted.size(), most_admitted(job_)));
        return plan;
    }

  private:
    /// Checks what holds for a deployment, or for any; throws all problems that are known by then.
    Plan checked_constants(const std::vector<ReplicaJob>& deployment) {
        check_precision(job_, model_, cluster_, problems_);
        check_data(given_limit(), deployment);
        problems_.throw_if_any();
        Plan constants = constants_of();
        problems_.throw_if_any();
        return constants;
    }

    /// Of every replica; one of those that are planned alike.
    using Planners = std::vector<std::shared_ptr<const ReplicaPlanner>>;

    /// Of microbatches that are not given; none: as workload_of() has it.
    std::optional<std::int64_t> usual_tokens(const Plan& constants) const {
        if (cluster_.backend != BackendKind::cuda) return std::nullopt;
        std::optional<std::int64_t> usual;
        if (cluster_.ranks == 1) usual = usual_tokens_of_one_gpu(model_);
        return wide_enough_to_hide(job_, constants, cluster_, replicas(), usual);
    }

    std::optional<PlannedJob> planned_or_none(const Job& job, Sizes sizes) const {
        try {
            return Planner(job, model_, datasets_, cluster_, former_, sizes).run();
        } catch (const InputError&) {
            return std::nullopt;
        }
    }

    std::optional<PlannedJob> with_streaming(bool fits, double least = 0.0) const {
        if (sizes_ != Sizes::searched || cluster_.backend != BackendKind::cuda) return std::nullopt;
        const auto plan = [&](const Job& job, bool tried) {
            return planned_or_none(job, tried ? Sizes::tried : Sizes::as_given);
        };
        const auto costs = [&](const Job& job, const Plan& of, std::int32_t tensor) {
            return built_in_of(job, of, tensor);
        };
        const auto speed_of = [&](const Plan& of, const SpeedLimits& at) { return speed(of, at); };
        const StreamingTask task{job_, datasets_, cluster_, former_, plan, costs, speed_of};
        return plan_streaming(task, fits, least);
    }

    /// Tokens a second of the whole job, by built-in costs.
    double speed(Plan plan, const SpeedLimits& limits = {}) const {
        CostModel costs = built_in_of(job_, plan, plan.replicas.front().tensor);
        costs.layer_transfer = plan.costs.layer_transfer;
        costs.layer_traffic = plan.costs.layer_traffic;
        costs.link_power = plan.costs.link_power;
        plan.costs = costs;
        return whole_job_speed(job_, plan, datasets_, limits);
    }

    void set_memory(Plan& plan) const {
        plan.memory.assign(ranks_in_order(plan).size(), {});
        for (const ReplicaPlan& replica : plan.replicas) {
            const ReplicaView view = view_of(plan, replica);
            for (std::size_t s = 0; s < replica.stages.size(); ++s) {
                std::fill_n(plan.memory.begin() + replica.stages[s].rank, replica.tensor,
                            stage_memory(job_, view, s));
            }
        }
        set_host_copies(plan, hosts_of(cluster_));
    }

    /// Adds to problems_ what does not fit.
    PlannedJob planned_with(const Plan& constants, const Workload& work) {
        const std::vector<ReplicaJob> shapes = replicas();
        Planners planners;
        for (std::size_t r = 0; r < shapes.size(); ++r) {
            const ReplicaJob& shape = shapes[r];
            const ReplicaPlan* former = former_of(shapes, r);
            const std::size_t known = former == nullptr ? first_alike(shapes, r) : r;
            if (known < r) {
                planners.push_back(planners[known]);
                continue;
            }
            const LaneCosts costs = costs_of_lanes(constants, shape.tensor);
            const double least_speed = least_speed_ * shape.tensor * shape.stages / cluster_.ranks;
            planners.push_back(std::make_shared<const ReplicaPlanner>(
                ReplicaTask{job_, constants, datasets_, work, costs,
                            lora_width(job_, cluster_.backend), former, shape, shapes.size() > 1,
                            host_room(cluster_), sizes_ != Sizes::tried, least_speed}));
        }
        return assembled(constants, planners);
    }

    /// The first replica that is planned as this one is.
    static std::size_t first_alike(const std::vector<ReplicaJob>& shapes, std::size_t r) {
        const auto key = [](const ReplicaJob& shape) {
            return std::tie(shape.tensor, shape.stages, shape.microbatch_tokens, shape.recompute,
                            shape.recomputed_layers, shape.recomputes_least);
        };
        std::size_t first = 0;
        while (key(shapes[first]) != key(shapes[r])) ++first;
        return first;
    }

    std::string where(std::string_view key) const { return cat(job_.path, ": ", key); }

    /// Each on its own, as number_ranks() orders them.
    std::vector<ReplicaJob> replicas() const {
        const auto& deployment = job_.parallel.deployment;
        if (deployment.empty()) return {{1, stages(), 1, {}}};
        std::vector<ReplicaJob> replicas;
        for (const ReplicaJob& entry : deployment) {
            replicas.insert(replicas.end(), static_cast<std::size_t>(entry.count), entry);
        }
        std::stable_sort(replicas.begin(), replicas.end(),
                         [](const auto& a, const auto& b) { return a.tensor > b.tensor; });
        return replicas;
    }

    bool has_several() const {
        const auto& deployment = job_.parallel.deployment;
        return deployment.size() > 1 || (deployment.size() == 1 && deployment.front().count > 1);
    }

    int stages() const { return job_.parallel.pipeline_stages.value_or(cluster_.ranks); }

    /// What is known by now of the tokens that the largest replica takes.
    std::int64_t given_limit() const {
        constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
        const std::int64_t common = job_.parallel.microbatch_tokens.value_or(any);
        if (job_.parallel.deployment.empty()) return common;
        std::int64_t most = 0;
        for (const ReplicaJob& entry : job_.parallel.deployment) {
            most = std::max(most, entry.microbatch_tokens.value_or(common));
        }
        return most;
    }

    CostModel built_in_of(const Job& job, const Plan& constants, std::int32_t tensor) const {
        CostModel costs =
            built_in_costs(model_, types_.compute, device_of(cluster_), tensor, types_.fp8_linears);
        add_dora(job, model_, costs);
        add_experts(job, model_, device_of(cluster_), costs);
        add_transfers(job, constants, device_of(cluster_), tensor, costs);
        add_hosts(job, cluster_, costs);
        if (job.parallel.offload.kind != Offload::Kind::none) {
            ReplicaPlan replica;
            replica.tensor = tensor;
            replica.microbatch_tokens = 1024;
            replica.saved_columns = lora_width(job, cluster_.backend).saved;
            const double bytes = static_cast<double>(layer_slot_bytes(view_of(constants, replica)));
            add_offload(bytes / static_cast<double>(replica.microbatch_tokens), device_of(cluster_),
                        costs);
        }
        return costs;
    }

    /// Built in, and for a pipeline that is alone those that are measured.
    LaneCosts costs_of_lanes(const Plan& constants, std::int32_t tensor) const {
        const CostModel built_in = built_in_of(job_, constants, tensor);
        if (has_several() || !cluster_.costs) return {built_in, built_in};
        CostModel measured = *cluster_.costs;
        take_unmeasured(built_in, measured);
        return {built_in, measured};
    }

    /// Of the run that is continued, the replica whose sizes one has.
    const ReplicaPlan* former_of(const std::vector<ReplicaJob>& shapes, std::size_t r) const {
        if (former_ == nullptr || former_->replicas.size() != shapes.size()) return nullptr;
        const auto alike = [](const ReplicaJob& shape, const ReplicaPlan& replica) {
            return shape.tensor == replica.tensor && shape.stages == std::ssize(replica.stages);
        };
        const bool same =
            std::equal(shapes.begin(), shapes.end(), former_->replicas.begin(), alike);
        return same || shapes.size() == 1 ? &former_->replicas[r] : nullptr;
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

    void check_data(std::int64_t most, const std::vector<ReplicaJob>& deployment) {
        for (const DatasetId id : used_datasets(job_)) check_lengths(id, most);
        for (const AdapterJob& adapter : job_.adapters) {
            checks_.form(adapter);
            checks_.tokens(adapter, deployment);
            checks_.targets(adapter);
        }
    }

    void check_lengths(DatasetId id, std::int64_t most) {
        if (!has_several()) return checks_.dataset(id, datasets_[index(id)], most);
        checks_.dataset(id, datasets_[index(id)], most,
                        "give a replica of parallel.deployment microbatch_tokens: # or more lanes",
                        "the largest replica takes,");
    }

    Plan constants_of() {
        Plan plan;
        plan.model = model_;
        plan.backend = cluster_.backend;
        plan.compute = types_.compute;
        plan.weights = types_.weights;
        plan.fp8_linears = types_.fp8_linears;
        plan.fp8_one_order = (former_ != nullptr && former_->fp8_one_order) ||
                             (types_.fp8_linears && resident_layers(job_) != all_layers);
        plan.expert_lora =
            (former_ != nullptr && former_->expert_lora) || targets_experts(job_, model_);
        plan.dora_outputs =
            former_ != nullptr ? former_->dora_outputs : reads_outputs(job_, model_);
        plan.device = former_ != nullptr ? former_->device : device_of(cluster_);
        plan.bytes_per_rank = cluster_.bytes_per_rank;
        plan.joint = has_several();
        for (const AdapterJob& adapter : job_.adapters) {
            plan.adapters.push_back(checks_.plan(adapter, datasets_[index(adapter.dataset)]));
        }
        plan.adapter_capacity = static_cast<std::int32_t>(plan.adapters.size()) + spare_adapters;
        for (const DatasetId id : used_datasets(job_)) take_lengths(datasets_[index(id)], plan);
        return plan;
    }

    PlannedJob assembled(const Plan& constants, const Planners& planners) {
        PlannedJob planned{constants, {}};
        Plan& plan = planned.plan;
        plan.costs = planners.front()->costs();
        for (const auto& planner : planners) add_replica(planner->candidate(), *planner, plan);
        join_products(plan);
        const std::vector<std::int32_t> hosts = hosts_of(cluster_);
        number_ranks(plan.replicas, hosts);
        const Residency& residency = job_.model.residency;
        if (residency.kind == Residency::Kind::shared && residency.sharers > 1) {
            set_layer_owners(plan.replicas, hosts);
        }
        set_memory(plan);
        FittingTokens fitting;
        for (std::size_t r = 0; r < planners.size(); ++r) {
            const ReplicaView view = view_of(plan, plan.replicas[r]);
            if (r == 0 || planners[r] != planners[r - 1]) {
                fitting = fitting_tokens(job_, view, planners[r]->longest_sample());
            }
            if (r == 0) planned.report = {fitting, planners[r]->trials(), false};
            planned.report.falls_behind |= planners[r]->falls_behind();
            check_memory(*planners[r], view, fitting);
        }
        if (planners.size() > 1) check_limits(plan);
        if (sizes_ != Sizes::tried) {
            keep_layers(planners, plan);
            check_host_memory(job_, cluster_, plan, problems_);
        }
        return planned;
    }

    void join_products(Plan& plan) const {
        const std::vector<ReplicaJob> shapes = replicas();
        for (std::size_t r = 0; r < shapes.size(); ++r) {
            ReplicaPlan& replica = plan.replicas[r];
            const ReplicaPlan* former = former_of(shapes, r);
            const bool alike = former != nullptr && former_->backend == plan.backend &&
                               former->tensor == replica.tensor;
            loratrain::join_products(job_, plan, alike ? former : nullptr, replica);
        }
    }

    void keep_layers(const Planners& planners, Plan& plan) const {
        for (std::size_t r = 0; r < planners.size(); ++r) {
            const Job& job = planners[r]->job();
            ReplicaPlan& replica = plan.replicas[r];
            loratrain::keep_layers(job, view_of(plan, replica), planners[r]->costs(),
                                   planners[r]->usual_load(), host_room(cluster_), replica);
            replica.texts_at_once = texts_at_once(job, view_of(plan, replica));
        }
        set_memory(plan);
    }

    /// Those train first that all replicas have room for.
    static void add_replica(const Candidate& candidate, const ReplicaPlanner& planner, Plan& plan) {
        const bool first = plan.replicas.empty();
        if (first || candidate.first_admitted.size() < plan.first_admitted.size()) {
            plan.first_admitted = candidate.first_admitted;
        }
        const std::int32_t tensor = candidate.replica.tensor;
        const bool known =
            first || tensor == plan.replicas.front().tensor ||
            std::any_of(plan.other_costs.begin(), plan.other_costs.end(),
                        [&](const DegreeCosts& other) { return other.tensor == tensor; });
        if (!known) plan.other_costs.push_back({tensor, planner.costs()});
        plan.replicas.push_back(candidate.replica);
    }

    /// Every sample fits into a microbatch of some replica, or of all with dispatch: uniform.
    void check_limits(const Plan& plan) {
        const auto [least, most] =
            std::ranges::minmax_element(plan.replicas, {}, &ReplicaPlan::microbatch_tokens);
        const std::string hint = larger_replica_hint(
            job_, plan, datasets_, cluster_,
            workload_of(job_, model_, cluster_.backend, datasets_).longest_sample);
        for (const DatasetId id : used_datasets(job_)) {
            const DatasetInfo& info = datasets_[index(id)];
            checks_.dataset(id, info, most->microbatch_tokens, hint, "the largest replica takes,");
            if (job_.parallel.dispatch != DispatchRule::uniform) continue;
            checks_.dataset(id, info, least->microbatch_tokens,
                            "with parallel.dispatch: uniform every replica must take #; use "
                            "dispatch: balanced",
                            "the smallest replica takes,");
        }
    }

    void check_memory(const ReplicaPlanner& planner, const ReplicaView& view,
                      const FittingTokens& fitting) {
        if (cluster_.bytes_per_rank == 0) return;
        std::string hint;
        for (const StagePlan& stage : view.replica.stages) {
            const MemoryPlan& memory = view.plan.memory[static_cast<std::size_t>(stage.rank)];
            if (memory.total() <= cluster_.bytes_per_rank) continue;
            if (hint.empty()) hint = hint_for(planner, view, fitting);
            problems_.add(where("parallel"),
                          missing_memory(view.plan, stage.rank, cluster_.bytes_per_rank), hint);
        }
    }

    std::string hint_for(const ReplicaPlanner& planner, const ReplicaView& view,
                         const FittingTokens& fitting) const {
        const std::int64_t longest = planner.longest_sample();
        Job job = planner.job();
        const bool must_recompute = fitting.layer == 0 && !may_use(job, Recompute::layer);
        if (must_recompute) job.parallel.recompute = Recompute::automatic;
        std::string hint = memory_hint(job, view, fitting, longest, planner.split());
        if (fitting.layer == 0 && !has_several() && sizes_ == Sizes::searched) {
            hint += other_ways_hint(job, view.plan, datasets_, cluster_, longest,
                                    [&](const Job& other) {
                                        return planned_or_none(other, Sizes::as_given).has_value();
                                    });
        }
        return must_recompute ? hint + "; each with recompute: auto" : hint;
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    const Plan* former_;
    Sizes sizes_;
    double least_speed_;
    NumberTypes types_;
    Problems problems_;
    AdapterChecks checks_;
};

}  // namespace

PlannedJob plan_job(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                    const Cluster& cluster, const Plan* former, double least_speed) {
    Job used = job;
    if (used.model.residency.kind == Residency::Kind::shared) {
        used.model.residency.sharers = sharers(job.parallel.deployment, cluster);
    }
    return Planner(used, model, datasets, cluster, former, Planner::Sizes::searched, least_speed)
        .run();
}

Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster, const Plan* former) {
    return plan_job(job, model, datasets, cluster, former).plan;
}

Plan plan_before_deployment(const Job& job, const ModelSpec& model,
                            std::span<const DatasetInfo> datasets, const Cluster& cluster) {
    return Planner(job, model, datasets, cluster, nullptr).before_deployment();
}

}  // namespace loratrain
