#include "plan/deploy/plan_streaming.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/arithmetic.h"
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

bool is_soon_predicted(const Job& job, std::int32_t stages) {
    /// Samples of a prediction's first rounds times stages.
    constexpr std::int64_t most = 1 << 13;
    std::int64_t samples = 0;
    for (const AdapterJob& adapter : job.adapters) samples += adapter.global_batch_size;
    return samples * rounds_predicted * stages <= most;
}

class StreamingPlanner {
  public:
    explicit StreamingPlanner(const StreamingTask& task) : task_(task), job_(task.job) {}

    std::optional<PlannedJob> run(bool fits, double least) const {
        const bool automatic = job_.model.residency.kind == Residency::Kind::automatic;
        if (job_.parallel.offload.kind != Offload::Kind::none) return with_offload();
        if (automatic ? fits : resident_layers(job_) == all_layers) return std::nullopt;
        if (automatic && has_several(job_)) return with_shared_or_streamed();
        Job job = job_;
        if (automatic) job.model.residency = {Residency::Kind::some, 0};
        if (has_free_sizes() || (automatic && job_.parallel.deployment.empty())) {
            const bool closely = has_free_sizes() && !job_.parallel.microbatch_tokens &&
                                 is_soon_predicted(job_, task_.cluster.ranks);
            const std::vector<Trial> trials = played_trials(job, automatic, closely, least > 0.0);
            if (trials.empty()) return std::nullopt;
            return closely ? fastest_predicted(trials, least) : planned_of(preferred(trials));
        }
        if (automatic) return task_.plan(job, false);
        return std::nullopt;
    }

  private:
    static constexpr double size_gain = 1.03;  ///< for which another size is taken
    static constexpr std::int64_t fewest_tokens = 2048;
    static constexpr double near_enough = 0.94;  ///< of what is played, to what is predicted
    static constexpr double hopeless = 0.8;      ///< of the fastest: larger ones wait for layers
    static constexpr std::size_t finalists = 8;  ///< that recompute, and that do not
    /// For which more of the host's memory is. Of 1.5 and 1.9% measurements found nothing: more
    /// layers' copies and wider pads are not in the costs.
    static constexpr double offload_gain = 1.02;

    /// Whether sizes of microbatches are looked for beside which layers stream.
    bool has_free_sizes() const {
        const ParallelJob& parallel = job_.parallel;
        const bool given = parallel.microbatch_tokens && parallel.recompute != Recompute::automatic;
        return task_.former == nullptr && parallel.deployment.empty() && !given;
    }

    /// A job with sizes that are given, and the layers that stay beside them.
    struct Trial {
        Job job;
        double speed = 0.0;  ///< played
    };
    static std::vector<std::int64_t> shares_of_most(std::int64_t most) {
        std::vector<std::int64_t> sizes;
        for (const std::int64_t share : {8, 6, 4, 3, 2}) sizes.push_back(most * share / 8);
        return sizes;
    }

    /// Ascending, to the largest, `most`; on one rank beyond it with fewer adapters at once, where
    /// memory is what limits it (`fitting`: tokens that fit).
    std::vector<std::int64_t> sizes_up_to(std::int64_t most, std::int64_t fitting) const {
        std::set<std::int64_t> sizes{most};
        const bool beyond = task_.cluster.ranks == 1 && fitting < most + most / 4;
        const std::int64_t last = beyond ? most + most / 4 : most;
        for (std::int64_t size = fewest_tokens; size <= last;
             size += round_up(size / 32, 2 * token_granule)) {
            sizes.insert(size);
        }
        return {sizes.begin(), sizes.end()};
    }

    /// Those that fit, those that recompute first. With `find_resident` as many layers stay as fit
    /// beside the microbatches, else as many as the job says. `closely`: of many sizes.
    /// `streaming`: those alone of which layers stream.
    std::vector<Trial> played_trials(const Job& job, bool find_resident, bool closely,
                                     bool streaming) const {
        const Plan* former = task_.former;
        std::vector<Trial> trials;
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            const bool other = former != nullptr && former->replicas.front().recompute != recompute;
            if (!may_use(job, recompute) || other) continue;
            Job asked = job;
            asked.parallel.recompute = recompute;
            auto planned = task_.plan(asked, true);
            if (!planned) continue;
            const std::int64_t most = planned->plan.replicas.front().microbatch_tokens;
            const bool given = job.parallel.microbatch_tokens || former != nullptr;
            const FittingTokens& fitting = planned->report.fitting;
            const std::int64_t fits = recompute == Recompute::layer ? fitting.layer : fitting.none;
            double fastest = 0.0;
            for (const std::int64_t size : given     ? std::vector{most}
                                           : closely ? sizes_up_to(most, fits)
                                                     : shares_of_most(most)) {
                asked.parallel.microbatch_tokens = size;
                if (size > most) planned = task_.plan(asked, true);
                if (!planned) break;
                Trial trial{asked};
                trial.speed = streaming_speed(planned->plan, trial.job, find_resident, streaming);
                if (trial.speed == 0.0) continue;
                if (closely && trial.speed < hopeless * fastest) break;
                fastest = std::max(fastest, trial.speed);
                trials.push_back(trial);
            }
        }
        return trials;
    }

    /// Large microbatches, and recomputation for their sake: they hide transfers on slower hosts.
    static const Trial& preferred(std::span<const Trial> trials) {
        const Trial* best = &trials.front();
        for (const Trial& trial : trials) {
            if (trial.speed > size_gain * best->speed) best = &trial;
        }
        return *best;
    }

    /// Of the best that recompute and of the best that do not, as they are predicted; `least`: by
    /// which a trial is ruled out.
    std::optional<PlannedJob> fastest_predicted(std::vector<Trial> trials, double least) const {
        std::ranges::stable_sort(trials, std::greater<>(), &Trial::speed);
        std::optional<PlannedJob> best;
        for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
            std::size_t count = 0;
            double fastest = least;
            for (const Trial& trial : trials) {
                if (trial.job.parallel.recompute != recompute) continue;
                fastest = std::max(fastest, trial.speed);
                if (trial.speed < near_enough * fastest || ++count > finalists) break;
                auto planned = planned_of(trial);
                if (!planned) continue;
                const double speed = task_.speed(planned->plan, {least});
                if (best && speed <= least) continue;
                least = std::max(least, speed);
                best = std::move(planned);
            }
        }
        return best;
    }

    std::optional<PlannedJob> planned_of(const Trial& trial) const {
        Job job = trial.job;
        job.parallel.recomputes_least = keeps_what_fits(job_.parallel);
        return task_.plan(job, false);
    }

    /// Tokens a second with the trial's microbatches, by simulation; gives it the layers that stay.
    /// 0 where the longest sample does not fit, or as `streaming` says.
    double streaming_speed(const Plan& planned, Job& trial, bool find_resident,
                           bool streaming) const {
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
        if (streaming && !streams(plan)) return 0.0;
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

std::optional<PlannedJob> plan_streaming(const StreamingTask& task, bool fits, double least) {
    return StreamingPlanner(task).run(fits, least);
}

bool streams(const Plan& plan) {
    return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const ReplicaPlan& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(),
                           [](const StagePlan& stage) { return streamed_layers(stage) > 0; });
    });
}

bool may_gain_by_streaming(const Job& job, const PlannedJob& planned, std::int64_t wanted) {
    const std::vector<ReplicaPlan>& replicas = planned.plan.replicas;
    if (job.model.residency.kind != Residency::Kind::automatic || replicas.size() > 1 ||
        !may_use(job, Recompute::none)) {
        return false;
    }
    if (replicas.front().recompute == Recompute::layer) return true;
    const auto stages = static_cast<std::int32_t>(replicas.front().stages.size());
    return !job.parallel.microbatch_tokens && job.parallel.deployment.empty() &&
           planned.plan.bytes_per_rank > 0 && planned.report.fitting.none < wanted &&
           is_soon_predicted(job, stages);
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
