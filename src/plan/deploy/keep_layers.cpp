#include "plan/deploy/keep_layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bisect.h"
#include "plan/cost/cost_model.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/residency.h"

namespace loratrain {

namespace {

constexpr double worthwhile_gain = 1.03;

/// On the CPU what goes to the host stays in the rank's memory.
bool fits_rank(const Plan& plan, const MemoryPlan& memory) {
    const bool cpu = plan.backend == BackendKind::cpu;
    return memory.total() + (cpu ? memory.host_activations : 0) <= plan.bytes_per_rank;
}

std::int32_t most_kept_layers(const Job& job, const ReplicaView& view, std::size_t s) {
    const auto fits = [&](std::int64_t kept) {
        ReplicaPlan trial = view.replica;
        trial.stages[s].kept_layers = static_cast<std::int32_t>(kept);
        return fits_rank(view.plan, stage_memory(job, view.with(trial), s));
    };
    if (view.plan.bytes_per_rank == 0 || !fits(0)) return 0;
    return static_cast<std::int32_t>(
        last_that_holds(0, view.replica.stages[s].layer_count + 1, fits));
}

MicrobatchLoad scaled_to(const MicrobatchLoad& load, std::int64_t tokens) {
    const double factor = static_cast<double>(tokens) / static_cast<double>(load.tokens);
    return {tokens, load.squares * factor,
            std::llround(static_cast<double>(load.targets) * factor)};
}

}  // namespace

bool keeps_what_fits(const ParallelJob& parallel) {
    return parallel.recompute == Recompute::automatic || parallel.recomputes_least;
}

std::vector<StagePlan> as_job_says(std::vector<StagePlan> stages, const Job& job) {
    const ParallelJob& parallel = job.parallel;
    stages = with_residency(std::move(stages), job);
    for (StagePlan& stage : stages) {
        const int again = parallel.recomputed_layers.value_or(stage.layer_count);
        stage.kept_layers = std::max(0, stage.layer_count - again);
        stage.offloaded_layers =
            parallel.offload.kind == Offload::Kind::some ? parallel.offload.layers : 0;
    }
    return stages;
}

void keep_what_fits(const Job& job, const ReplicaView& view, ReplicaPlan& replica) {
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        replica.stages[s].kept_layers = most_kept_layers(job, view, s);
    }
}

void offload_what_gains(const Job& job, const ReplicaView& view, const CostModel& costs,
                        const MicrobatchLoad& usual, std::uint64_t host_bytes, bool kept_is_free,
                        ReplicaPlan& replica) {
    if (costs.offload_per_token <= 0.0 || usual.tokens == 0) return;
    const MicrobatchLoad load = scaled_to(usual, replica.microbatch_tokens);
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        StagePlan best = replica.stages[s];
        double fastest = stage_seconds(costs, best, load, replica.recompute) / worthwhile_gain;
        ReplicaPlan trial = replica;
        for (std::int32_t layers = 1; layers <= best.layer_count; ++layers) {
            StagePlan& stage = trial.stages[s];
            stage.offloaded_layers = layers;
            if (kept_is_free) stage.kept_layers = most_kept_layers(job, view.with(trial), s);
            const MemoryPlan memory = stage_memory(job, view.with(trial), s);
            const bool fits = view.plan.bytes_per_rank == 0 || fits_rank(view.plan, memory);
            if (!fits || (host_bytes > 0 && memory.host_activations > host_bytes)) continue;
            const double seconds = stage_seconds(costs, stage, load, replica.recompute);
            if (seconds >= fastest) continue;
            fastest = seconds;
            best = stage;
        }
        replica.stages[s] = best;
    }
}

std::int64_t fastest_recomputing(const Job& job, const ReplicaView& view, const CostModel& costs,
                                 const MicrobatchLoad& usual, std::int64_t longest,
                                 std::int64_t most) {
    const auto seconds_of_token = [&](std::int64_t tokens) {
        ReplicaPlan trial = view.replica;
        trial.microbatch_tokens = tokens;
        trial.recompute = Recompute::layer;
        keep_what_fits(job, view.with(trial), trial);
        return slowest_seconds(costs, trial.stages, scaled_to(usual, tokens), trial.recompute) /
               static_cast<double>(tokens);
    };
    if (usual.tokens == 0) return most;
    std::int64_t best = most;
    double fastest = seconds_of_token(most);
    for (const std::int64_t share : {6, 4, 3, 2, 1}) {
        const std::int64_t tokens =
            std::max(most * share / 8, longest + token_granule - 1) / token_granule * token_granule;
        if (tokens >= best) continue;
        const double seconds = seconds_of_token(tokens);
        if (seconds * worthwhile_gain > fastest) continue;
        fastest = seconds;
        best = tokens;
    }
    return best;
}

}  // namespace loratrain
