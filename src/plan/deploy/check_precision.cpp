#include "plan/deploy/check_precision.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "config/model_limits.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"
#include "plan/memory/engine_memory.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::int64_t fp8_multiple = 16;  // cuBLASLt: 16 bytes of codes

constexpr const char* instead = "use model.precision: bf16";

/// Sizes of MLPs, as published configs name them.
struct NamedSize {
    const char* name;
    std::int64_t size;
};
std::vector<NamedSize> mlp_sizes(const ModelSpec& model) {
    std::vector<NamedSize> sizes;
    if (const DenseSpec* dense = model.dense_layers()) {
        sizes.push_back({"intermediate_size", dense->size});
    }
    if (const ExpertSpec* experts = model.experts()) {
        sizes.push_back({"moe_intermediate_size", experts->size});
        if (experts->has_shared()) sizes.push_back({"shared expert size", experts->shared_size});
    }
    return sizes;
}

void check_lanes(const std::string& key, const ModelSpec& model, std::int32_t tensor,
                 Problems& problems) {
    const ModelSpec lane = lane_model(model, tensor);
    if (takes_fp8(lane)) return;
    const AttentionSpec& attention = lane.attention();
    std::string sizes = cat("hidden_size ", lane.hidden_size, ", ", attention.heads, " and ",
                            attention.kv_heads, " heads of ", attention.head_dim);
    for (const NamedSize& mlp : mlp_sizes(lane)) sizes += cat(", ", mlp.name, " ", mlp.size);
    problems.add(
        key,
        cat("fp8 needs sizes that are multiples of ", fp8_multiple,
            tensor > 1 ? cat(", but with tp: ", tensor, " a rank has ") : std::string(", not "),
            sizes),
        tensor > 1 ? cat("use a smaller tp, or model.precision: bf16") : instead);
}

}  // namespace

bool takes_fp8(const ModelSpec& lane_model) {
    const AttentionSpec& attention = lane_model.attention();
    const std::vector<NamedSize> mlps = mlp_sizes(lane_model);
    return can(lane_model, Ability::fp8) && lane_model.hidden_size % fp8_multiple == 0 &&
           attention.q_size() % fp8_multiple == 0 && attention.kv_size() % fp8_multiple == 0 &&
           std::all_of(mlps.begin(), mlps.end(),
                       [](const NamedSize& mlp) { return mlp.size % fp8_multiple == 0; });
}

void check_precision(const Job& job, const ModelSpec& model, const Cluster& cluster,
                     Problems& problems) {
    if (job.model.precision != Precision::fp8) return;
    const std::string key = cat(job.path, ": model.precision");
    if (cluster.backend != BackendKind::cuda) {
        problems.add(key, "fp8 is computed by GPUs alone, and this job runs on the CPU",
                     "use model.precision: bf16 or fp32, or run.backend: cuda");
        return;
    }
    if (!computes_fp8(device_of(cluster))) {
        problems.add(key,
                     cat("fp8 needs a Hopper GPU, as h100 or h200, not '", device_of(cluster), "'"),
                     instead);
    } else if (has_experts(model) && !is_large_hopper(device_of(cluster))) {
        problems.add(key,
                     cat("fp8 of a model with experts needs an h100 or h200, not '",
                         device_of(cluster), "'"),
                     instead);
    }
    if (model.quantization && model.quantization->format != WeightFormat::e4m3) {
        problems.add(key,
                     cat("fp8 cannot be computed from weights in ",
                         traits_of(model.quantization->format).name),
                     "use model.precision: bf16, or a base that is imported with --quantize fp8 or "
                     "without");
    }
    if (const ModelLimit* limit = limit_of(model, Ability::fp8)) {
        return problems.add(key, limit->what(model), limit->hint);
    }
    check_lanes(key, model, 1, problems);
    for (const ReplicaJob& replica : job.parallel.deployment) {
        if (replica.tensor > 1 && can_shard(model, replica.tensor)) {
            check_lanes(key, model, replica.tensor, problems);
        }
    }
}

}  // namespace loratrain
