#include "plan/deploy/plan_streaming.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bisect.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

/// Tokens of a microbatch, in whole 1024s, whose forward takes as long as the transfers of a stage
/// of `layers` layers of which `resident` stay; 0 where none streams. Backward takes longer.
std::int64_t tokens_that_hide(const CostModel& costs, std::int32_t layers, std::int32_t resident) {
    constexpr double granule = 1024.0;
    StagePlan stage;
    stage.layer_count = layers;
    stage.resident_layers = resident;
    const std::int32_t loads = streamed_layers(stage) - stream_buffers(stage);
    if (loads == 0 || costs.layer_forward.per_token <= 0.0) return 0;
    const double of_token = layers * costs.layer_forward.per_token;
    const double tokens = loads * costs.layer_transfer / of_token;
    return static_cast<std::int64_t>(granule * std::ceil(tokens / granule));
}

/// The most layers that can stay on every rank, with the replica's microbatches and recomputation;
/// none where they do not fit with no layer resident.
std::optional<std::int32_t> most_resident_layers(const Job& job, const ReplicaView& view) {
    const auto fits = [&](std::int64_t resident) {
        ReplicaPlan trial = view.replica;
        for (StagePlan& stage : trial.stages) {
            stage.resident_layers = static_cast<std::int32_t>(resident);
        }
        return fits_memory(job, view.with(trial), trial.microbatch_tokens, trial.recompute);
    };
    if (!fits(0)) return std::nullopt;
    return static_cast<std::int32_t>(last_that_holds(0, view.lane_model.layers + 1, fits));
}

bool has_several(const Job& job) {
    const auto& deployment = job.parallel.deployment;
    return deployment.size() > 1 || (deployment.size() == 1 && deployment.front().count > 1);
}

class StreamingPlanner {
  public:
    explicit StreamingPlanner(const StreamingTask& task) : task_(task), job_(task.job) {}

    std::optional<PlannedJob> run(bool fits) const {
        const bool automatic = job_.model.residency.kind == Residency::Kind::automatic;
        if (job_.parallel.offload.kind != Offload::Kind::none) return with_offload();
        if (automatic ? fits : resident_layers(job_) == all_layers) return std::nullopt;
        if (automatic && has_several(job_)) return with_shared_or_streamed();
        Job job = job_;
        if (automatic) job.model.residency = {Residency::Kind::some, 0};
        if (has_free_sizes() || (automatic && job_.parallel.deployment.empty())) {
            const auto fastest = fastest_streaming(job, automatic);
            if (!fastest) return std::nullopt;
            job = *fastest;
            job.parallel.recomputes_least = keeps_what_fits(job_.parallel);
        } else if (!automatic) {
            return std::nullopt;
        }
        return task_.plan(job, false);
    }

  private:
    static constexpr double size_gain = 1.03;  ///< for which another size is taken
    /// For which more of the host's memory is. Of 1.5 and 1.9% measurements found nothing: more
    /// layers' copies and wider pads are not in the costs.
    static constexpr double offload_gain = 1.02;

    /// Whether sizes of microbatches are looked for beside which layers stream.
    bool has_free_sizes() const {
        const ParallelJob& parallel = job_.parallel;
        const bool given = parallel.microbatch_tokens && parallel.recompute != Recompute::automatic;
        return task_.former == nullptr && parallel.deployment.empty() && !given;
    }

    /// The job with what makes it fastest as layers of it stream: none where it does not fit. With
    /// `find_resident` as many stay as fit beside the microbatches, else as many as it says. Large
    /// microbatches are preferred, and recomputation for their sake: they hide transfers on slower
    /// hosts too.
    std::optional<Job> fastest_streaming(const Job& job, bool find_resident) const {
        const Plan* former = task_.former;
        std::optional<Job> best;
        double fastest = 0.0;
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            const bool other = former != nullptr && former->replicas.front().recompute != recompute;
            if (!may_use(job, recompute) || other) continue;
            Job trial = job;
            trial.parallel.recompute = recompute;
            const auto planned = task_.plan(trial, true);
            if (!planned) continue;
            const std::int64_t most = planned->plan.replicas.front().microbatch_tokens;
            for (const std::int64_t share : {8, 6, 4, 3, 2}) {
                if (share < 8 && (job.parallel.microbatch_tokens || former != nullptr)) break;
                trial.parallel.microbatch_tokens = most * share / 8;
                const double speed = streaming_speed(planned->plan, trial, find_resident);
                if (speed <= size_gain * fastest) continue;
                fastest = speed;
                best = trial;
            }
        }
        return best;
    }

    /// Tokens a second with the trial's microbatches, by simulation; gives it the layers that stay.
    double streaming_speed(const Plan& planned, Job& trial, bool find_resident) const {
        Plan plan = planned;
        ReplicaPlan& replica = plan.replicas.front();
        replica.microbatch_tokens = *trial.parallel.microbatch_tokens;
        const Workload work = workload_of(trial, plan.model, task_.cluster.backend, task_.datasets);
        if (replica.microbatch_tokens < work.longest_sample) return 0.0;
        if (find_resident) {
            const auto resident = most_resident_layers(trial, only_replica(plan));
            if (!resident) return 0.0;
            trial.model.residency.layers = *resident;
        }
        replica.stages = with_residency(replica.stages, trial);
        return played_speed(trial, plan, task_.datasets, task_.costs(trial, plan, replica.tensor));
    }

    bool has_free_replicas() const {
        const ParallelJob& parallel = job_.parallel;
        const auto& deployment = parallel.deployment;
        return task_.former == nullptr && !parallel.microbatch_tokens &&
               parallel.recompute == Recompute::automatic &&
               std::none_of(deployment.begin(), deployment.end(), [](const ReplicaJob& replica) {
                   return replica.microbatch_tokens || replica.recompute != Recompute::automatic;
               });
    }

    /// Replicas that hold the base between them, in the microbatches that are fastest as
    /// activations go to the host: larger ones than fit without hide more transfers.
    std::optional<PlannedJob> with_offload() const {
        const bool shared = job_.model.residency.kind == Residency::Kind::shared;
        const bool automatic = job_.parallel.offload.kind == Offload::Kind::automatic;
        if (!shared || !automatic || !has_free_replicas()) return std::nullopt;
        std::optional<PlannedJob> best = task_.plan(job_, false);
        if (!best) return std::nullopt;
        const std::int64_t tokens = best->plan.replicas.front().microbatch_tokens;
        double fastest = first_replicas_speed(job_, best->plan);
        for (const std::int64_t share : {12, 16, 20, 24}) {
            Job trial = job_;
            trial.parallel.microbatch_tokens = tokens * share / 8 / token_granule * token_granule;
            std::optional<PlannedJob> planned = task_.plan(trial, false);
            if (!planned) break;
            const double speed = first_replicas_speed(trial, planned->plan);
            if (speed <= offload_gain * fastest) continue;
            fastest = speed;
            best = std::move(planned);
        }
        return best;
    }

    /// Tokens a second of the first replica, with its share of every batch, by simulation.
    double first_replicas_speed(Job job, Plan plan) const {
        const auto count = static_cast<std::int32_t>(plan.replicas.size());
        for (std::size_t a = 0; a < job.adapters.size(); ++a) {
            const std::int32_t group = plan.adapters[a].group_samples;
            std::int32_t& batch = job.adapters[a].global_batch_size;
            batch = ceil_div(ceil_div(batch, count), group) * group;
        }
        plan.replicas.resize(1);
        plan.joint = false;
        const CostModel costs = task_.costs(job, plan, plan.replicas.front().tensor);
        return played_speed(job, plan, task_.datasets, costs);
    }

    /// A given deployment of replicas whose base does not fit: from each other's memory, else from
    /// the host's.
    std::optional<PlannedJob> with_shared_or_streamed() const {
        Job job = job_;
        const std::int32_t ranks = sharers(job_.parallel.deployment, task_.cluster);
        for (const auto kind : {Residency::Kind::shared, Residency::Kind::stream}) {
            job.model.residency = {kind, 0, ranks};
            if (kind == Residency::Kind::shared && ranks == 1) continue;
            if (auto planned = task_.plan(job, false)) return planned;
        }
        return std::nullopt;
    }

    const StreamingTask& task_;
    const Job& job_;
};

}  // namespace

std::optional<PlannedJob> plan_streaming(const StreamingTask& task, bool fits) {
    return StreamingPlanner(task).run(fits);
}

bool streams(const Plan& plan) {
    return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const ReplicaPlan& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(),
                           [](const StagePlan& stage) { return streamed_layers(stage) > 0; });
    });
}

bool may_gain_by_streaming(const Job& job, const Plan& plan) {
    return job.model.residency.kind == Residency::Kind::automatic && plan.replicas.size() == 1 &&
           may_use(job, Recompute::none) && plan.replicas.front().recompute == Recompute::layer;
}

std::optional<std::int64_t> wide_enough_to_hide(const Job& job, const Plan& plan,
                                                const Cluster& cluster,
                                                std::span<const ReplicaJob> replicas,
                                                std::optional<std::int64_t> usual) {
    constexpr std::int64_t most = 32768;
    if (resident_layers(job) == all_layers) return usual;
    std::int64_t tokens = usual.value_or(usual_tokens_of_one_gpu(plan.model));
    for (const ReplicaJob& replica : replicas) {
        CostModel costs = built_in_costs(plan.model, plan.compute, device_of(cluster),
                                         replica.tensor, plan.fp8_linears);
        add_transfers(job, plan, device_of(cluster), replica.tensor, costs);
        StagePlan stage;
        stage.layer_count = static_cast<std::int32_t>(plan.model.layers) / replica.stages;
        const StagePlan own = with_residency({stage}, job).front();
        tokens = std::max(
            tokens, std::min(most, tokens_that_hide(costs, own.layer_count, own.resident_layers)));
    }
    return tokens;
}

}  // namespace loratrain
