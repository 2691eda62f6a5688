#include "plan/deploy/keep_layers.h"

#include <algorithm>
#include <utility>

#include "base/arithmetic.h"
#include "plan/cost/cost_model.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"

namespace loratrain {

namespace {

constexpr double worthwhile_gain = 1.03;

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

}  // namespace

bool fits_rank(const Plan& plan, const MemoryPlan& memory) {
    const bool cpu = plan.backend == BackendKind::cpu;
    return memory.total() + (cpu ? memory.host_activations : 0) <= plan.bytes_per_rank;
}

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

namespace {

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

}  // namespace

bool keep_layers(const Job& job, const ReplicaView& view, const CostModel& costs,
                 const MicrobatchLoad& usual, std::uint64_t host_bytes, ReplicaPlan& replica) {
    const bool keeps = keeps_what_fits(job.parallel);
    const bool offloads = job.parallel.offload.kind == Offload::Kind::automatic;
    if (view.replica.recompute != Recompute::layer || !(keeps || offloads)) return false;
    ReplicaPlan kept = view.replica;
    if (keeps) keep_what_fits(job, view, kept);
    if (offloads) offload_what_gains(job, view, costs, usual, host_bytes, keeps, kept);
    replica = kept;
    return true;
}

}  // namespace loratrain
