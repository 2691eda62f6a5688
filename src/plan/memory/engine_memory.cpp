#include "plan/memory/engine_memory.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "base/device_memory.h"
#include "base/gemm_shape.h"
#include "kernels/lora/lora_sizes.h"
#include "kernels/sizes.h"
#include "plan/memory/kind_memory.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_processors = 192;  ///< multiprocessors; more on no GPU known in 2026
/// Ranks of a slot up to which lora_backward goes by its narrow pass.
constexpr std::int64_t narrow_ranks = kernels::lora_pass_rank_multiple;

std::int64_t pass_ranks(std::int64_t ranks) {
    return round_up(ranks, kernels::lora_pass_rank_multiple);
}

std::uint64_t grown(std::int64_t bytes) {
    return static_cast<std::uint64_t>(round_up(bytes, device_memory::growing_step));
}

bool on_cuda(const Plan& plan) {
    return plan.backend == BackendKind::cuda;
}

bool in_bf16(const Plan& plan) {
    return on_cuda(plan) && plan.compute == DType::bf16;
}

/// Whose rows a microbatch may hold.
struct ScratchUsers {
    std::vector<const AdapterJob*> adapters;
    std::size_t at_once = 0;  ///< so many of them; fewer where a sweep has more than may train
};

ScratchUsers all_adapters(const Job& job) {
    ScratchUsers users;
    for (const AdapterJob& adapter : job.adapters) users.adapters.push_back(&adapter);
    const std::size_t most = job.sweep ? most_admitted(job) : users.adapters.size();
    users.at_once = std::min(users.adapters.size(), most);
    return users;
}

std::int64_t most_tiles(std::int64_t tokens, std::int64_t columns, std::int64_t segments) {
    const std::int64_t row_tiles =
        std::max<std::int64_t>(1, most_processors * kernels::lora_pass_blocks_of_processor /
                                      ceil_div<std::int64_t>(columns, kernels::lora_pass_columns));
    return std::min(row_tiles, ceil_div<std::int64_t>(tokens, kernels::lora_pass_row_multiple)) +
           segments;
}

LinearGroupShape outer_shape(const ModelSpec& model, Linear linear) {
    const LinearShape shape = linear_shape(model, linear);
    return {{linear}, 1, shape.in, shape.out};
}

/// lora_shrink and lora_grad_a of the linears of `shape` together.
std::int64_t group_scratch(const ReplicaView& view, const LinearGroupShape& shape,
                           const ScratchUsers& users) {
    std::vector<std::int64_t> copied;
    std::int64_t ranks = 0;
    for (const AdapterJob* adapter : users.adapters) {
        std::int64_t targets = 0;
        for (const Linear linear : shape.list()) {
            if (adapter->targets_linear(linear)) ++targets;
        }
        copied.push_back(targets *
                         round_up(adapter->largest_rank(), kernels::lora_copy_row_multiple));
        ranks = std::max(ranks, targets * pass_ranks(adapter->largest_rank()));
    }
    std::sort(copied.begin(), copied.end(), std::greater<>());
    copied.resize(users.at_once);
    const std::int64_t copies = std::accumulate(copied.begin(), copied.end(), std::int64_t{0});
    const std::int64_t tiles = most_tiles(view.replica.microbatch_tokens, shape.in,
                                          static_cast<std::int64_t>(users.at_once));
    return std::max(kernels::lora_copy_bytes(copies, shape.in),
                    kernels::lora_grad_a_bytes(tiles, ranks, shape.in));
}

/// Bytes that lora_backward takes in one launch, with so many ranks of a slot.
std::int64_t pass_bytes(const kernels::LoraOutputs& dy, std::int64_t segments, std::int64_t ranks) {
    const std::int64_t columns = dy.columns();
    if (columns == 0) return 0;
    const auto bytes = [&](std::int64_t tiles, std::int64_t part_columns, std::int64_t rows) {
        return kernels::lora_backward_bytes(tiles, dy.parts(part_columns), ranks, columns, rows);
    };
    const std::int64_t usual =
        bytes(most_tiles(dy.rows, columns, segments), kernels::lora_part_columns, dy.rows);
    if (columns > kernels::lora_small_columns) return usual;
    const std::int64_t part = kernels::lora_small_part_columns;
    const std::int64_t rows = std::min(dy.rows, kernels::lora_small_pass / columns);
    return std::max(usual, bytes(ceil_div(rows, part) + segments, part, rows));
}

/// The same where no slot has more than narrow_ranks.
std::int64_t narrow_bytes(const kernels::LoraOutputs& dy, std::int64_t segments) {
    const std::int64_t columns = dy.columns();
    if (columns == 0) return 0;
    kernels::LoraOutputs few = dy;
    few.rows = std::min(dy.rows, kernels::lora_narrow_pass / columns);
    const std::int64_t of_few = pass_bytes(few, segments, narrow_ranks);
    if (few.rows == dy.rows) return of_few;
    constexpr std::int64_t tile_rows = kernels::lora_narrow_rows;
    constexpr std::int64_t rows_at_once =
        most_processors * kernels::lora_pass_blocks_of_processor * tile_rows;
    const std::int64_t rows_of_parts = std::max(rows_at_once, dy.count * dy.rows);
    return std::max(of_few, kernels::lora_backward_bytes(ceil_div(dy.rows, tile_rows) + segments, 1,
                                                         narrow_ranks, columns, rows_of_parts));
}

/// Of adapters that have a linear.
struct SweptRanks {
    std::int64_t largest = 0;
    bool any_narrow = false;  ///< at most narrow_ranks, or perhaps so

    void add(const AdapterJob& adapter) {
        largest = std::max<std::int64_t>(largest, adapter.largest_rank());
        any_narrow = any_narrow || adapter.modules || adapter.largest_rank() <= narrow_ranks;
    }
};

/// Bytes that lora_backward takes in one launch.
std::int64_t bytes_of_ranks(const kernels::LoraOutputs& dy, std::int64_t segments,
                            const SweptRanks& ranks) {
    const std::int64_t bytes = ranks.any_narrow ? narrow_bytes(dy, segments) : 0;
    if (ranks.largest <= narrow_ranks) return bytes;
    return std::max(bytes, pass_bytes(dy, segments, pass_ranks(ranks.largest)));
}

/// lora_backward of the linears of `shape`, together or one by one.
std::int64_t pass_scratch(const ReplicaView& view, const LinearGroupShape& shape,
                          const ScratchUsers& users) {
    const auto segments = static_cast<std::int64_t>(users.at_once);
    const std::int64_t tokens = view.replica.microbatch_tokens;
    SweptRanks ranks;
    std::vector<std::int64_t> ends;
    std::int64_t most = 0;
    std::int64_t columns = 0;
    for (const Linear linear : shape.list()) {
        for (const AdapterJob* adapter : users.adapters) {
            if (adapter->targets_linear(linear)) ranks.add(*adapter);
        }
        columns += linear_shape(view.lane_model, linear).out;
        ends.push_back(columns);
    }
    for (const Linear linear : shape.list()) {
        const std::int64_t out = linear_shape(view.lane_model, linear).out;
        most = std::max(most, bytes_of_ranks({tokens, &out, 1}, segments, ranks));
    }
    return std::max(most, bytes_of_ranks({tokens, ends.data(), shape.count}, segments, ranks));
}

/// lora_gated_forward: S of down of blocks of the columns; lora_gated_backward: gradients of gate,
/// up and down of tiles, and dS of gate and up of blocks of the columns.
std::int64_t gated_scratch(const ReplicaView& view, const ScratchUsers& users) {
    const ModelSpec& model = view.lane_model;
    SweptRanks before;
    SweptRanks behind;
    for (const AdapterJob* adapter : users.adapters) {
        if (adapter->targets_linear(Linear::gate)) before.add(*adapter);
        if (adapter->targets_linear(Linear::up)) before.add(*adapter);
        if (adapter->targets_linear(Linear::down)) behind.add(*adapter);
    }
    const DenseSpec* mlp = model.dense_layers();
    if (!behind.any_narrow || mlp == nullptr || !mlp->has_gate()) return 0;
    const std::int64_t f = mlp->size;
    const std::int64_t tokens = view.replica.microbatch_tokens;
    if (!before.any_narrow) return kernels::lora_gated_forward_bytes(f, tokens);
    const std::int64_t tiles = most_tiles(tokens, f, static_cast<std::int64_t>(users.at_once));
    return kernels::lora_gated_backward_bytes(tiles, f, tokens);
}

/// expert_down_backward: parts of the gradients of a router's weights; with LoRA in experts, the
/// factors that products add.
std::int64_t expert_scratch(const ReplicaView& view) {
    const ExpertSpec* experts = view.lane_model.experts();
    if (experts == nullptr || !joins_experts(view, *experts)) return 0;
    const std::int64_t f = experts->size;
    const std::int64_t parts =
        kernels::expert_all_parts_bytes(view.replica.microbatch_tokens * experts->per_token, f);
    if (!view.plan.expert_lora) return parts;
    const std::int64_t r = view.replica.saved_columns;
    const auto factors = [&](std::int64_t columns, std::int64_t of_s) {
        return kernels::expert_factors_bytes(experts->held(), columns, of_s);
    };
    const std::int64_t hidden = view.lane_model.hidden_size;
    return std::max({parts + factors(f, r), factors(2 * f, 2 * r), factors(hidden, 2 * r)});
}

/// delta_rule and delta_rule_backward. Which way the gradients take depends on the GPU's shared
/// memory; the larger where that is not known.
std::int64_t delta_scratch(const ReplicaView& view) {
    const DeltaNetSpec* net = view.lane_model.delta_nets();
    if (net == nullptr) return 0;
    const kernels::DeltaSizes sizes{net->key_dim, net->value_dim, net->key_heads, net->value_heads};
    const std::int64_t tokens = view.replica.microbatch_tokens;
    const auto backward = [&](int shared_limit) {
        return kernels::delta_rule_backward_bytes(sizes, tokens, in_bf16(view.plan), shared_limit);
    };
    const std::int64_t most = std::max(kernels::delta_rule_bytes(sizes, tokens, in_bf16(view.plan)),
                                       backward(kernels::most_shared_bytes));
    return is_large_hopper(view.plan.device)
               ? most
               : std::max(most, backward(kernels::least_shared_bytes));
}

}  // namespace

bool is_large_hopper(std::string_view device) {
    return device == "h100" || device == "h200";
}

std::uint64_t gemm_workspace_bytes(const ReplicaView& view) {
    return on_cuda(view.plan) ? device_memory::gemm_workspace : 0;
}

std::uint64_t gemm_timing_bytes(const ReplicaView& view, const StagePlan& stage) {
    if (!in_bf16(view.plan)) return 0;
    std::int64_t widest = 0;
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(view.lane_model, group);
        const std::int64_t blocks = column_blocks(view, group) + shape.count;
        widest = std::max(widest, shape.in + shape.out + blocks * view.replica.saved_columns);
    }
    const ModelSpec& model = view.lane_model;
    for (const LayerSpec& layer : model.descriptions) {
        widest = std::max(widest, widest_product(view, layer));
    }
    std::int64_t elements = rows_alike(view.replica.microbatch_tokens).largest * widest;
    if (stage.has_head) {
        const std::int64_t rows = rows_alike(logits_chunk(view).rows).largest;
        elements =
            std::max(elements, rows * (view.lane_model.hidden_size + view.lane_model.vocab_size));
    }
    return grown(elements * static_cast<std::int64_t>(compute_bytes(view.plan)) +
                 2 * static_cast<std::int64_t>(tensor_alignment));
}

std::uint64_t table_ring_bytes(const ReplicaView& view) {
    using namespace device_memory;
    return on_cuda(view.plan) ? table_ring_sectors * table_ring_sector + lora_table_cache : 0;
}

std::uint64_t operator_scratch_bytes(const Job& job, const ReplicaView& view,
                                     const StagePlan& stage) {
    if (!on_cuda(view.plan)) return 0;
    std::int64_t bytes = kernels::sum_squares_bytes;
    if (stage.has_head) {
        bytes = std::max(bytes, logits_chunk(view).rows * kernels::cross_entropy_row_bytes);
    }
    bytes = std::max(bytes, delta_scratch(view));
    if (!in_bf16(view.plan)) return static_cast<std::uint64_t>(bytes);
    const ScratchUsers users = all_adapters(job);
    const auto count = [&](const LinearGroupShape& shape) {
        bytes =
            std::max({bytes, group_scratch(view, shape, users), pass_scratch(view, shape, users)});
    };
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(view.lane_model, group);
        if (shape.count > 0) count(shape);
    }
    bytes = std::max({bytes, gated_scratch(view, users), expert_scratch(view)});
    const auto any_on = [&](Linear linear) {
        return std::any_of(
            users.adapters.begin(), users.adapters.end(),
            [linear](const AdapterJob* adapter) { return adapter->targets_linear(linear); });
    };
    if (stage.has_head && any_on(Linear::head)) count(outer_shape(view.lane_model, Linear::head));
    if (stage.has_embedding && any_on(Linear::embedding)) {
        const LinearGroupShape shape = outer_shape(view.lane_model, Linear::embedding);
        bytes = std::max(bytes, pass_scratch(view, shape, users));
    }
    return static_cast<std::uint64_t>(bytes);
}

std::uint64_t attention_row_bytes(const ReplicaView& view) {
    if (!on_cuda(view.plan)) return 0;
    return grown(view.replica.microbatch_tokens * view.lane_model.attention().heads *
                 kernels::attention_row_bytes);
}

std::uint64_t attention_tile_bytes(const ReplicaView& view) {
    if (!on_cuda(view.plan)) return 0;
    const std::int64_t t = view.replica.microbatch_tokens;
    // Evaluation packs samples of any number, each of one token or more.
    const std::int64_t tiles = t / kernels::attention_least_rows + t;
    return device_memory::attention_tile_tables * grown(tiles * kernels::attention_tile_bytes);
}

std::uint64_t attention_score_bytes(const ReplicaView& view) {
    const AttentionSpec& attention = view.lane_model.attention();
    if (!in_bf16(view.plan) || attention.soft_cap != 0.0 ||
        !kernels::keeps_attention_scores(attention.head_dim) ||
        !is_large_hopper(view.plan.device)) {
        return 0;
    }
    using device_memory::attention_most_scores;
    const auto bytes = [](std::int64_t heads, std::int64_t pairs) {
        return heads * pairs * kernels::attention_score_pair_bytes;
    };
    const std::int64_t tokens = view.replica.microbatch_tokens;
    const std::int64_t longest = std::clamp<std::int64_t>(view.plan.longest_sample, 1, tokens);
    const std::int64_t of_longest = kernels::attention_score_pairs(longest);
    if (bytes(attention.heads / attention.kv_heads, of_longest) > attention_most_scores) return 0;
    const std::int64_t pairs =
        tokens / longest * of_longest + kernels::attention_score_pairs(tokens % longest);
    return grown(std::min(bytes(attention.heads, pairs), attention_most_scores));
}

std::uint64_t lane_sum_bytes(const ReplicaView& view) {
    using namespace device_memory;
    const auto of_group = [](std::int32_t ranks) {
        const std::int64_t peers = std::min<std::int64_t>(ranks - 1, nccl_most_peers);
        return static_cast<std::uint64_t>(peers * nccl_channels) * nccl_connection;
    };
    if (!on_cuda(view.plan)) return 0;
    return of_group(view.replica.tensor) +
           of_group(lanes_per_key_value_head(view.plan.model, view.replica.tensor));
}

std::uint64_t EngineLayout::total() const {
    return gemm_workspace + gemm_timing + table_ring + operator_scratch + attention_rows +
           attention_tiles + attention_scores + lane_sums;
}

EngineLayout engine_layout(const Job& job, const ReplicaView& view, const StagePlan& stage) {
    EngineLayout layout;
    layout.gemm_workspace = gemm_workspace_bytes(view);
    layout.gemm_timing = gemm_timing_bytes(view, stage);
    layout.table_ring = table_ring_bytes(view);
    layout.operator_scratch = operator_scratch_bytes(job, view, stage);
    layout.attention_rows = attention_row_bytes(view);
    layout.attention_tiles = attention_tile_bytes(view);
    layout.attention_scores = attention_score_bytes(view);
    layout.lane_sums = lane_sum_bytes(view);
    return layout;
}

}  // namespace loratrain
