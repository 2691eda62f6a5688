#include "plan/deploy/memory_hints.h"

#include <algorithm>

#include "base/text.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/partition_layers.h"
#include "plan/deploy/replica_options.h"
#include "plan/memory/engine_memory.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"

namespace loratrain {

namespace {

/// Of a replica that a refusal proposes: what hosts of GPUs have.
constexpr int most_lanes_named = 8;

std::string hint_for_given_tokens(const Job& job, const ReplicaView& view,
                                  const FittingTokens& fitting) {
    std::vector<std::string> hints;
    const std::int64_t now = view.replica.microbatch_tokens;
    const std::int64_t usable = may_use(job, Recompute::layer) ? fitting.layer : fitting.none;
    if (usable > 0) {
        hints.push_back(cat("microbatch_tokens: ", usable, " would fit (now ", now, ")"));
    }
    if (!may_use(job, Recompute::layer) && fitting.layer > usable) {
        hints.push_back(
            fits_memory(job, view, now, Recompute::layer)
                ? std::string("recompute: layer would fit")
                : cat("recompute: layer with microbatch_tokens: ", fitting.layer, " would fit"));
    }
    return join(hints, "; ");
}

/// Where not even the longest sample fits.
std::string hint_for_longest(const Job& job, const ReplicaView& view, std::int64_t longest) {
    const std::int64_t most = largest_fitting_tokens(job, view, Recompute::layer, 1);
    const std::string keys =
        job.parallel.microbatch_tokens ? "microbatch_tokens and max_seq_len" : "max_seq_len";
    return cat("no microbatch_tokens fits, not even the ", longest,
               " of the longest sample with recompute: layer",
               most > 0 ? cat(", but ", most, " would: lower ", keys,
                              ", with over_length: truncate or drop")
                        : std::string());
}

/// The plan with the memory that a rank has where there are several.
Plan with_several_ranks(Plan plan) {
    const bool alone = plan.backend == BackendKind::cuda && plan.memory.size() == 1;
    if (alone && plan.bytes_per_rank > nccl_bytes) plan.bytes_per_rank -= nccl_bytes;
    return plan;
}

/// Number of stages, more than the plan's, with which the smallest choice fits; 0 = none.
std::int32_t fewest_fitting_stages(const Job& job, const ReplicaView& view, std::int64_t longest,
                                   const LayerSplit& split) {
    const auto layers = static_cast<std::int32_t>(view.lane_model.layers);
    const std::int64_t tokens = job.parallel.microbatch_tokens.value_or(longest);
    const Recompute recompute = may_use(job, Recompute::layer) ? Recompute::layer : Recompute::none;
    const Plan plan = with_several_ranks(view.plan);
    ReplicaPlan trial = view.replica;
    for (auto n = static_cast<std::int32_t>(view.replica.stages.size()) + 1; n <= layers; ++n) {
        if (!can_hold_adapters(job, view.plan.model, {trial.tensor, n})) continue;
        trial.stages = split(n, recompute);
        trial.max_in_flight = n;
        const ReplicaView tried{plan, trial, view.lane_model};
        if (!fit_layers(job, tried, tokens, recompute).empty()) return n;
    }
    return 0;
}

/// " (replica 1, stage 0)" of several.
std::string place_text(const Plan& plan, std::int32_t rank) {
    if (plan.replicas.size() == 1) return "";
    const RankPlace place = place_of(plan, rank);
    return cat(" (replica ", place.replica, ", stage ", place.stage, ")");
}

}  // namespace

std::string missing_memory(const Plan& plan, std::int32_t rank, std::uint64_t bytes_per_rank) {
    const MemoryPlan& memory = plan.memory[static_cast<std::size_t>(rank)];
    return cat("rank ", rank, place_text(plan, rank), " needs ", human_bytes(memory.total()),
               " (weights ", human_bytes(memory.weights), ", adapters ",
               human_bytes(memory.adapters), ", activations ", human_bytes(memory.activations),
               ", workspace ", human_bytes(memory.workspace), ", engine ",
               human_bytes(memory.engine), "), but has ", human_bytes(bytes_per_rank), ", ",
               human_bytes(memory.total() - bytes_per_rank), " too little");
}

std::string memory_hint(const Job& job, const ReplicaView& view, const FittingTokens& fitting,
                        std::int64_t longest, const LayerSplit& split) {
    std::string hint;
    if (fitting.layer == 0) {
        hint = hint_for_longest(job, view, longest);
    } else if (job.parallel.microbatch_tokens) {
        hint = hint_for_given_tokens(job, view, fitting);
    } else {
        hint = "recompute: layer would fit";
    }
    const std::int32_t enough = fewest_fitting_stages(job, view, longest, split);
    if (enough == 0) return hint;
    return cat(hint, "; more than ", view.replica.stages.size(),
               " pipeline stages (ranks) make each stage smaller, ", enough, " would fit");
}

std::string other_ways_hint(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                            const Cluster& cluster, std::int64_t longest,
                            const std::function<bool(const Job&)>& fits) {
    std::string text;
    Cluster larger = cluster;
    larger.ranks_per_node = std::max(cluster.ranks_per_node, most_lanes_named);
    larger.ranks = std::max(cluster.ranks, most_lanes_named);
    const auto room =
        smallest_replica_for(job, with_several_ranks(plan), datasets, larger, longest);
    if (room && room->replica.tensor > 1) {
        text = cat("; so would parallel.deployment: ", deployment_text({room->replica}), " on ",
                   room->replica.tensor * room->replica.stages, " ranks, for up to ", room->tokens,
                   " tokens");
    }
    if (cluster.backend == BackendKind::cuda && resident_layers(job) == all_layers) {
        Job streaming = job;
        streaming.model.residency = {Residency::Kind::stream, 0, 1};
        streaming.parallel.offload = {};
        const bool offloads = job.parallel.offload.kind != Offload::Kind::none;
        if (fits(streaming)) {
            text += cat("; model.residency: stream ", offloads ? "with offload: none " : "",
                        "would fit, with the layers in host memory");
        }
    }
    return text;
}

std::string larger_replica_hint(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                std::int64_t longest) {
    const auto room = smallest_replica_for(job, plan, datasets, cluster, longest);
    if (!room) return "give a replica of parallel.deployment microbatch_tokens: #";
    return cat(to_text(room->replica), " would take ", room->tokens, ", # are needed");
}

}  // namespace loratrain
