#include "plan/memory/engine_memory.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "base/alignment.h"
#include "base/attention_scores.h"
#include "base/device_memory.h"
#include "base/gemm_shape.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_processors = 192;  ///< multiprocessors; more on no GPU known in 2026

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
        std::max<std::int64_t>(1, most_processors * device_memory::lora_pass_blocks /
                                      ceil_div(columns, device_memory::lora_pass_columns));
    return std::min(row_tiles, ceil_div(tokens, device_memory::lora_pass_rows)) + segments;
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
        for (int i = 0; i < shape.count; ++i) {
            if (adapter->targets_linear(shape.linears[static_cast<std::size_t>(i)])) ++targets;
        }
        copied.push_back(targets *
                         round_up(adapter->largest_rank(), device_memory::lora_copy_ranks));
        ranks = std::max(
            ranks, targets * round_up(adapter->largest_rank(), device_memory::lora_pass_ranks));
    }
    std::sort(copied.begin(), copied.end(), std::greater<>());
    copied.resize(users.at_once);
    const std::int64_t columns = std::accumulate(copied.begin(), copied.end(), std::int64_t{0});
    const std::int64_t copies = columns * round_up(shape.in, device_memory::lora_copy_columns) * 2;
    const std::int64_t gradients = most_tiles(view.replica.microbatch_tokens, shape.in,
                                              static_cast<std::int64_t>(users.at_once)) *
                                   ranks * shape.in * 4;
    return std::max(copies, gradients);
}

/// Numbers that lora_backward of linears with so many outputs takes in one launch for each rank:
/// gradients of tiles, and dS of parts of the columns.
std::int64_t pass_numbers(std::int64_t tokens, std::span<const std::int64_t> outs,
                          std::int64_t segments) {
    namespace sizes = device_memory;
    const std::int64_t columns = std::accumulate(outs.begin(), outs.end(), std::int64_t{0});
    if (columns == 0) return 0;
    const auto parts = [&](std::int64_t size) {
        std::int64_t count = 0;
        for (const std::int64_t out : outs) count += ceil_div(out, size);
        return count;
    };
    const std::int64_t usual =
        most_tiles(tokens, columns, segments) * columns + parts(sizes::lora_part_columns) * tokens;
    if (columns > sizes::lora_small_columns) return usual;
    const std::int64_t rows = std::min(tokens, sizes::lora_small_pass / columns);
    const std::int64_t tiles = ceil_div(rows, sizes::lora_small_part_columns) + segments;
    return std::max(usual, tiles * columns + parts(sizes::lora_small_part_columns) * rows);
}

/// The same where no slot has more than lora_pass_ranks.
std::int64_t narrow_numbers(std::int64_t tokens, std::span<const std::int64_t> outs,
                            std::int64_t segments) {
    namespace sizes = device_memory;
    const std::int64_t columns = std::accumulate(outs.begin(), outs.end(), std::int64_t{0});
    if (columns == 0) return 0;
    const std::int64_t few_tokens = std::min(tokens, sizes::lora_narrow_pass / columns);
    const std::int64_t of_few = pass_numbers(few_tokens, outs, segments);
    if (few_tokens == tokens) return of_few;
    const std::int64_t tiles = ceil_div(tokens, sizes::lora_narrow_rows) + segments;
    const std::int64_t rows_at_once =
        most_processors * sizes::lora_pass_blocks * sizes::lora_narrow_rows;
    const auto targets = static_cast<std::int64_t>(outs.size());
    return std::max(of_few, tiles * columns + std::max(rows_at_once, targets * tokens));
}

/// Of adapters that have a linear.
struct SweptRanks {
    std::int64_t largest = 0;
    bool any_narrow = false;  ///< at most lora_pass_ranks, or perhaps so

    void add(const AdapterJob& adapter) {
        largest = std::max<std::int64_t>(largest, adapter.largest_rank());
        any_narrow = any_narrow || adapter.modules ||
                     adapter.largest_rank() <= device_memory::lora_pass_ranks;
    }
};

/// Numbers that lora_backward of linears with so many outputs takes in one launch.
std::int64_t numbers_of_ranks(std::int64_t tokens, std::span<const std::int64_t> outs,
                              std::int64_t segments, const SweptRanks& ranks) {
    constexpr std::int64_t narrow = device_memory::lora_pass_ranks;
    std::int64_t numbers = 0;
    if (ranks.any_narrow) numbers = narrow * narrow_numbers(tokens, outs, segments);
    if (ranks.largest <= narrow) return numbers;
    return std::max(numbers,
                    round_up(ranks.largest, narrow) * pass_numbers(tokens, outs, segments));
}

/// lora_backward of the linears of `shape`, together or one by one.
std::int64_t pass_scratch(const ReplicaView& view, const LinearGroupShape& shape,
                          const ScratchUsers& users) {
    const auto segments = static_cast<std::int64_t>(users.at_once);
    const std::int64_t tokens = view.replica.microbatch_tokens;
    SweptRanks ranks;
    std::vector<std::int64_t> outs;
    for (int i = 0; i < shape.count; ++i) {
        const Linear linear = shape.linears[static_cast<std::size_t>(i)];
        outs.push_back(linear_shape(view.lane_model, linear).out);
        for (const AdapterJob* adapter : users.adapters) {
            if (adapter->targets_linear(linear)) ranks.add(*adapter);
        }
    }
    std::int64_t most = numbers_of_ranks(tokens, outs, segments, ranks);
    for (const std::int64_t& out : outs) {
        most = std::max(most, numbers_of_ranks(tokens, {&out, 1}, segments, ranks));
    }
    return most * 4;
}

/// lora_gated_forward: S of down of blocks of the columns; lora_gated_backward: gradients of gate,
/// up and down of tiles, and dS of gate and up of blocks of the columns.
std::int64_t gated_scratch(const ReplicaView& view, const ScratchUsers& users) {
    namespace sizes = device_memory;
    const ModelSpec& model = view.lane_model;
    SweptRanks before;
    SweptRanks behind;
    for (const AdapterJob* adapter : users.adapters) {
        if (adapter->targets_linear(Linear::gate)) before.add(*adapter);
        if (adapter->targets_linear(Linear::up)) before.add(*adapter);
        if (adapter->targets_linear(Linear::down)) behind.add(*adapter);
    }
    if (!behind.any_narrow || !model.has_gate() || model.has_experts()) return 0;
    const std::int64_t f = model.intermediate_size;
    const std::int64_t tokens = view.replica.microbatch_tokens;
    std::int64_t numbers = ceil_div(f, sizes::lora_gated_columns) * tokens;
    if (before.any_narrow) {
        const std::int64_t tiles = most_tiles(tokens, f, static_cast<std::int64_t>(users.at_once));
        const std::int64_t parts = 2 * ceil_div(f, sizes::lora_pass_columns);
        numbers = 3 * tiles * f + parts * tokens;
    }
    return numbers * sizes::lora_pass_ranks * 4;
}

}  // namespace

std::uint64_t gemm_workspace_bytes(const ReplicaView& view) {
    return on_cuda(view.plan) ? device_memory::gemm_workspace : 0;
}

std::uint64_t gemm_timing_bytes(const ReplicaView& view, const StagePlan& stage) {
    if (!in_bf16(view.plan)) return 0;
    std::int64_t widest = 0;
    for (int g = 0; g < linear_group_count; ++g) {
        const auto group = static_cast<LinearGroup>(g);
        const LinearGroupShape shape = group_shape(view.lane_model, group);
        const std::int64_t blocks = column_blocks(view, group) + shape.count;
        widest = std::max(widest, shape.in + shape.out + blocks * view.replica.saved_columns);
    }
    const ModelSpec& model = view.lane_model;
    if (model.has_experts()) {
        const std::int64_t of_expert = std::max(2 * model.experts.size, model.experts.count);
        widest = std::max(widest, model.hidden_size + of_expert);
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
    std::int64_t bytes = device_memory::sum_squares;
    if (stage.has_head) {
        bytes = std::max(bytes, logits_chunk(view).rows * device_memory::cross_entropy_row);
    }
    if (!in_bf16(view.plan)) return static_cast<std::uint64_t>(bytes);
    const ScratchUsers users = all_adapters(job);
    const auto count = [&](const LinearGroupShape& shape) {
        bytes =
            std::max({bytes, group_scratch(view, shape, users), pass_scratch(view, shape, users)});
    };
    for (int g = 0; g < linear_group_count; ++g) {
        const LinearGroupShape shape = group_shape(view.lane_model, static_cast<LinearGroup>(g));
        if (shape.count > 0) count(shape);
    }
    bytes = std::max(bytes, gated_scratch(view, users));
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
    return grown(view.replica.microbatch_tokens * view.lane_model.heads *
                 device_memory::attention_row_statistics);
}

std::uint64_t attention_tile_bytes(const ReplicaView& view) {
    if (!on_cuda(view.plan)) return 0;
    const std::int64_t t = view.replica.microbatch_tokens;
    // Evaluation packs samples of any number, each of one token or more.
    const std::int64_t tiles = t / device_memory::attention_least_tile_rows + t;
    return device_memory::attention_tile_tables * grown(tiles * device_memory::attention_tile);
}

std::uint64_t attention_score_bytes(const ReplicaView& view) {
    const ModelSpec& model = view.lane_model;
    const std::string_view device = view.plan.device;
    if (!in_bf16(view.plan) || model.attention_soft_cap != 0.0 ||
        !keeps_attention_scores(model.head_dim) || (device != "h100" && device != "h200")) {
        return 0;
    }
    using device_memory::attention_most_scores;
    const auto bytes = [](std::int64_t heads, std::int64_t pairs) {
        return heads * pairs * device_memory::attention_score_pair;
    };
    const std::int64_t tokens = view.replica.microbatch_tokens;
    const std::int64_t longest = std::clamp<std::int64_t>(view.plan.longest_sample, 1, tokens);
    const std::int64_t of_longest = attention_score_pairs(longest);
    if (bytes(model.heads / model.kv_heads, of_longest) > attention_most_scores) return 0;
    const std::int64_t pairs =
        tokens / longest * of_longest + attention_score_pairs(tokens % longest);
    return grown(std::min(bytes(model.heads, pairs), attention_most_scores));
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
