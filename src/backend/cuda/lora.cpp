#include "kernels/lora/lora.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/table_cache.h"
#include "base/arithmetic.h"
#include "base/device_memory.h"
#include "kernels/lora/lora_gated.h"

namespace loratrain {

namespace {

/// Parts are cut evenly, but for this.
constexpr std::int64_t tile_row_multiple = 32;

/// A function of dense MLPs, which the fused kernels have.
bool is_of_dense(Activation activation) {
    return activation == Activation::silu || activation == Activation::gelu_tanh;
}

kernels::LoraSlotEntry entry_of(const LoraSlot& slot) {
    kernels::LoraSlotEntry entry{};
    entry.a = slot.a;
    entry.b = slot.b;
    entry.grad_a = slot.grad_a;
    entry.grad_b = slot.grad_b;
    entry.dropout_key = slot.dropout_key;
    entry.rank = slot.rank;
    entry.scale = slot.scale;
    entry.column = slot.column;
    entry.dropout = static_cast<std::uint16_t>(slot.dropout);
    return entry;
}

/// Notes the number of the 8 columns where X begins; it is equal for all slots with dropout.
void add_dropout(const LoraSlot& slot, kernels::LoraTables& tables) {
    if (slot.rank == 0 || slot.dropout == 0) return;
    const std::int32_t block = slot.dropout_column / 8;
    LORATRAIN_CHECK(
        slot.dropout_column % 8 == 0 && (!tables.dropout || tables.first_dropout_block == block),
        "dropout from column ", slot.dropout_column, " of a linear's input");
    tables.dropout = true;
    tables.first_dropout_block = block;
}

bool drops(std::span<const LoraTarget> targets) {
    return std::ranges::any_of(targets, [](const LoraTarget& target) {
        return std::ranges::any_of(
            target.slots, [](const LoraSlot& slot) { return slot.rank > 0 && slot.dropout > 0; });
    });
}

std::int32_t largest_rank(std::span<const LoraTarget> targets) {
    std::int32_t largest = 0;
    for (const LoraTarget& target : targets) {
        for (const LoraSlot& slot : target.slots) {
            largest = std::max(largest, static_cast<std::int32_t>(slot.rank));
        }
    }
    return largest;
}

}  // namespace

kernels::LoraTables CudaBackend::slot_tables(std::span<const LoraTarget> targets,
                                             bool of_gradients) {
    LORATRAIN_CHECK(targets.size() <= kernels::max_lora_targets, targets.size(), " LoRA targets");
    kernels::LoraTables tables;
    const std::size_t count = targets.empty() ? 0 : targets.front().slots.size();
    std::vector<std::int32_t>& sums = rank_sums_;
    sums.assign(count, 0);
    slots_.clear();
    copy_rows_ = 0;
    for (const LoraTarget& target : targets) {
        LORATRAIN_CHECK(target.slots.size() == count, "targets of ", count, " and ",
                        target.slots.size(), " slots");
        require_compute({&target.s});
        for (std::size_t i = 0; i < count; ++i) {
            kernels::LoraSlotEntry entry = entry_of(target.slots[i]);
            entry.copy_row = copy_rows_;
            entry.begins = of_gradients && target.slots[i].begins_gradients ? 1 : 0;
            slots_.push_back(entry);
            copy_rows_ += round_up(entry.rank, kernels::lora_copy_row_multiple);
            sums[i] += round_up(entry.rank, kernels::lora_pass_rank_multiple);
            tables.largest_rank = std::max(tables.largest_rank, entry.rank);
            tables.largest_rank_sum = std::max(tables.largest_rank_sum, sums[i]);
            add_dropout(target.slots[i], tables);
        }
    }
    tables.target_count = static_cast<std::int32_t>(targets.size());
    tables.slot_count = static_cast<std::int32_t>(count);
    return tables;
}

void CudaBackend::add_tiles(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows) {
    segments_.clear();
    tiles_.clear();
    const auto cut = [&](std::int64_t begin, std::int64_t end, std::int32_t segment,
                         std::int32_t slot) {
        const std::int64_t count = ceil_div(end - begin, tile_rows);
        const std::int64_t even = count == 0 ? 0 : ceil_div(end - begin, count);
        const std::int64_t step =
            std::min<std::int64_t>(tile_rows, round_up(even, tile_row_multiple));
        for (std::int64_t row = begin; row < end; row += step) {
            tiles_.push_back({static_cast<std::int32_t>(row),
                              static_cast<std::int32_t>(std::min(end, row + step)), segment, slot,
                              0});
        }
    };
    std::int64_t done = 0;
    for (const LoraSegment& segment : lora.segments) {
        LORATRAIN_CHECK(
            segment.begin >= done && segment.end >= segment.begin && segment.end <= rows,
            "LoRA segment [", segment.begin, ", ", segment.end, ") of ", rows, " rows");
        cut(done, segment.begin, -1, -1);
        cut(segment.begin, segment.end, static_cast<std::int32_t>(segments_.size()), segment.slot);
        segments_.push_back({static_cast<std::int32_t>(segment.begin),
                             static_cast<std::int32_t>(segment.end), segment.slot, segment.step});
        done = segment.end;
    }
    cut(done, rows, -1, -1);
}

std::int32_t CudaBackend::count_tiles_of_slots(std::size_t slots) {
    tiles_of_slots_.assign(slots, 0);
    for (const kernels::LoraTile& tile : tiles_) {
        if (tile.slot >= 0) ++tiles_of_slots_.at(static_cast<std::size_t>(tile.slot));
    }
    for (kernels::LoraTile& tile : tiles_) {
        if (tile.slot >= 0) {
            tile.tiles_of_slot = tiles_of_slots_[static_cast<std::size_t>(tile.slot)];
        }
    }
    return slots == 0 ? 0 : std::ranges::max(tiles_of_slots_);
}

kernels::LoraRowCuts CudaBackend::row_cuts(const LoraRows& lora, std::int64_t rows) {
    parts_.clear();
    std::int64_t done = 0;
    for (const LoraSegment& segment : lora.segments) {
        parts_.push_back(segment.begin - done);
        parts_.push_back(segment.end - segment.begin);
        done = segment.end;
    }
    parts_.push_back(rows - done);
    return {rows, parts_.data(), static_cast<int>(parts_.size())};
}

kernels::LoraTables CudaBackend::lora_tables(std::span<const LoraTarget> targets,
                                             const LoraRows& lora, std::int64_t rows,
                                             std::int32_t tile_rows, bool of_gradients) {
    kernels::LoraTables tables = slot_tables(targets, of_gradients);
    place_tables(lora, rows, tile_rows, tables);
    return tables;
}

void CudaBackend::place_tables(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows,
                               kernels::LoraTables& tables) {
    add_tiles(lora, rows, tile_rows);
    tables.most_tiles_of_slot = count_tiles_of_slots(static_cast<std::size_t>(tables.slot_count));
    for (const kernels::LoraTile& tile : tiles_) {
        tables.tile_rows = std::max(tables.tile_rows, tile.end - tile.begin);
    }
    std::tie(tables.slots, tables.segments, tables.tiles) =
        lora_tables_->find(slots_, segments_, tiles_);
    tables.segment_count = static_cast<std::int32_t>(segments_.size());
    tables.tile_count = static_cast<std::int32_t>(tiles_.size());
    tables.positions = lora.rows.positions;
    tables.sample_ids = lora.rows.sample_ids;
}

void CudaBackend::lora_shrink(const LoraShrink& op) {
    require_compute({&op.x});
    kernels::LoraShrinkParams params;
    params.x = matrix_of(op.x);
    params.shared_limit = shared_limit_;
    params.tile_rows = lora_shrink_tile_rows(params, processors_);
    params.tables = lora_tables(op.targets, op.rows, op.x.rows, params.tile_rows);
    for (std::size_t i = 0; i < op.targets.size(); ++i) params.s[i] = matrix_of(op.targets[i].s);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < op.targets.size() && column < op.again.cols; ++i) {
        params.again[i] = matrix_of(op.again.col_range(column, op.targets[i].s.cols));
        column += op.targets[i].s.cols;
    }
    params.copy_rows = copy_rows_;
    params.copies =
        reserve_workspace(static_cast<std::size_t>(kernels::lora_shrink_workspace(params)));
    CUDA_CHECK(kernels::lora_shrink(stream_, params));
}

void CudaBackend::lora_expand(const LoraExpand& op) {
    require_compute({&op.y});
    kernels::LoraExpandParams params;
    params.y = matrix_of(op.y);
    params.shared_limit = shared_limit_;
    const kernels::LoraRowCuts cuts = row_cuts(op.rows, op.y.rows);
    params.tables = lora_tables({&op.target, 1}, op.rows, op.y.rows,
                                kernels::lora_expand_tile_rows(params, cuts, false, processors_));
    params.s[0] = matrix_of(op.target.s);
    CUDA_CHECK(kernels::lora_expand(stream_, params));
}

void CudaBackend::lora_backward(const LoraBackward& op) {
    lora_backward_group({&op, 1});
}

void CudaBackend::lora_backward_group(std::span<const LoraBackward> ops) {
    if (ops.empty()) return;
    LORATRAIN_CHECK(ops.size() <= kernels::max_lora_targets, ops.size(), " LoRA targets");
    kernels::LoraBackwardParams params;
    params.dy = matrix_of(ops.front().dy);
    params.shared_limit = shared_limit_;
    swept_targets_.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const LoraBackward& op = ops[i];
        require_compute({&op.dy, &op.ds});
        if (i > 0 && !are_side_by_side(ops[i - 1].dy, op.dy)) {
            lora_backward_group(ops.first(i));
            lora_backward_group(ops.subspan(i));
            return;
        }
        swept_targets_.push_back(op.target);
        params.s[i] = matrix_of(op.target.s);
        params.ds[i] = matrix_of(op.ds);
        params.dy.cols = op.dy.cols + (i == 0 ? 0 : params.ends[i - 1]);
        params.ends[i] = params.dy.cols;
    }
    if (ops.size() > 1 && !kernels::lora_backward_takes_together(params, ops.size())) {
        for (const LoraBackward& op : ops) lora_backward(op);
        return;
    }
    params.tables = slot_tables(swept_targets_, true);
    const kernels::LoraRowCuts cuts = row_cuts(ops.front().rows, params.dy.rows);
    const kernels::LoraBackwardCut cut = lora_backward_cut(params, cuts, processors_);
    place_tables(ops.front().rows, params.dy.rows, cut.tile_rows, params.tables);
    params.part_columns = cut.part_columns;
    params.workspace =
        reserve_workspace(static_cast<std::size_t>(kernels::lora_backward_workspace(params)));
    CUDA_CHECK(kernels::lora_backward(stream_, params));
}

void CudaBackend::lora_grad_a(const LoraGradA& op) {
    require_compute({&op.x});
    kernels::LoraGradAParams params;
    params.x = matrix_of(op.x);
    params.shared_limit = shared_limit_;
    const kernels::LoraRowCuts cuts = row_cuts(op.rows, op.x.rows);
    params.tables = lora_tables(op.targets, op.rows, op.x.rows,
                                lora_grad_a_tile_rows(params, cuts, processors_), true);
    for (std::size_t i = 0; i < op.targets.size(); ++i) params.ds[i] = matrix_of(op.targets[i].s);
    params.weight = op.weight;
    params.weight_offset = op.weight_offset;
    params.workspace =
        reserve_workspace(static_cast<std::size_t>(kernels::lora_grad_a_workspace(params)));
    CUDA_CHECK(kernels::lora_grad_a(stream_, params));
}

bool CudaBackend::takes_at_once(const LoraGatedForward& op) const {
    const SwiGlu& product = op.product;
    return !product.codes.are_wanted() && is_of_dense(product.activation) &&
           kernels::lora_gated_forward_takes(matrix_of(product.gate), matrix_of(product.up),
                                             matrix_of(product.h), largest_rank({&op.down, 1}));
}

void CudaBackend::lora_gated_forward(const LoraGatedForward& op) {
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    const SwiGlu& product = op.product;
    require_compute({&product.gate, &product.up, &product.h});
    kernels::LoraGatedForwardParams params;
    params.gate = matrix_of(product.gate);
    params.up = matrix_of(product.up);
    params.h = matrix_of(product.h);
    params.function = gate_of(product.activation);
    params.s = matrix_of(op.down.s);
    if (op.again.data != nullptr) params.again = matrix_of(op.again);
    const std::int64_t rows = product.h.rows;
    params.tables =
        lora_tables({&op.down, 1}, op.rows, rows,
                    lora_gated_forward_tile_rows(params, row_cuts(op.rows, rows), processors_));
    params.workspace =
        reserve_workspace(static_cast<std::size_t>(lora_gated_forward_workspace(params)));
    CUDA_CHECK(kernels::lora_gated_forward(stream_, params));
}

void CudaBackend::pass_without_dropout(const LoraTarget& first, const LoraTarget& second) {
    undropped_slots_.assign(first.slots.begin(), first.slots.end());
    undropped_slots_.insert(undropped_slots_.end(), second.slots.begin(), second.slots.end());
    for (LoraSlot& slot : undropped_slots_) slot.dropout = 0;
    const std::span<const LoraSlot> slots = undropped_slots_;
    swept_targets_.assign({{slots.first(first.slots.size()), first.s},
                           {slots.subspan(first.slots.size()), second.s}});
}

bool CudaBackend::takes_at_once(const LoraGatedBackward& op) const {
    const LoraTarget targets[] = {op.gate.target, op.up.target, op.down};
    return !op.product.codes.are_wanted() && is_of_dense(op.product.activation) &&
           kernels::lora_gated_backward_takes(swiglu_backward_params(op.product),
                                              largest_rank(targets), shared_limit_);
}

void CudaBackend::lora_gated_backward(const LoraGatedBackward& op) {
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    const SwiGluBackward& product = op.product;
    require_compute({&product.gate, &product.up, &product.dh, &product.dgate, &product.dup});
    require_compute({&op.gate.ds, &op.up.ds});
    kernels::LoraGatedParams params;
    params.product = swiglu_backward_params(product);
    params.s[0] = matrix_of(op.gate.target.s);
    params.s[1] = matrix_of(op.up.target.s);
    params.ds[0] = matrix_of(op.gate.ds);
    params.ds[1] = matrix_of(op.up.ds);
    params.ds_of_down = matrix_of(op.down.s);
    params.adds_down = op.adds_down;
    params.shared_limit = shared_limit_;
    const std::int64_t rows = product.gate.rows;
    const kernels::LoraRowCuts cuts = row_cuts(op.gate.rows, rows);
    const std::int32_t tile_rows = lora_gated_backward_tile_rows(params, cuts, processors_);
    pass_without_dropout(op.gate.target, op.up.target);
    swept_targets_.push_back(op.down);
    params.tables = lora_tables(swept_targets_, op.gate.rows, rows, tile_rows, true);
    params.workspace =
        reserve_workspace(static_cast<std::size_t>(lora_gated_backward_workspace(params)));
    CUDA_CHECK(kernels::lora_gated_backward(stream_, params));
}

void CudaBackend::lora_expand_backward(const LoraExpandBackward& op) {
    require_compute({&op.dx});
    kernels::LoraExpandParams params;
    params.y = matrix_of(op.dx);
    params.shared_limit = shared_limit_;
    params.of_a = true;
    const kernels::LoraRowCuts cuts = row_cuts(op.rows, op.dx.rows);
    params.tables =
        lora_tables(op.targets, op.rows, op.dx.rows,
                    kernels::lora_expand_tile_rows(params, cuts, drops(op.targets), processors_));
    for (std::size_t i = 0; i < op.targets.size(); ++i) params.s[i] = matrix_of(op.targets[i].s);
    params.accumulate = op.accumulate;
    CUDA_CHECK(kernels::lora_expand(stream_, params));
}

void CudaBackend::add_pack(const LoraPack& op, kernels::LoraPackParams& params) {
    require_compute({&op.b_pad, &op.a_pad});
    LORATRAIN_CHECK(op.first >= 0 && op.first + op.a_pad.rows <= op.b_pad.cols,
                    "lora_pack: columns [", op.first, ", ", op.first + op.a_pad.rows, ") of ",
                    op.b_pad.cols);
    kernels::LoraPackItem item{};
    item.b_pad = op.b_pad.data;
    item.a_pad = op.a_pad.data;
    item.b_ld = op.b_pad.ld;
    item.a_ld = op.a_pad.ld;
    item.out = op.b_pad.rows;
    item.in = op.a_pad.cols;
    item.columns = op.a_pad.rows;
    item.b_columns = op.b_pad.cols;
    item.b_first = op.first;
    item.first_slot = static_cast<std::int32_t>(slots_.size());
    item.slot_count = static_cast<std::int32_t>(op.slots.size());
    for (const LoraSlot& slot : op.slots) slots_.push_back(entry_of(slot));
    params.most_columns = std::max(params.most_columns, item.columns);
    params.largest = std::max(params.largest, item.out * item.b_columns + item.in * item.columns);
    params.is_wide =
        params.is_wide && kernels::lora_pack_is_wide(matrix_of(op.b_pad), matrix_of(op.a_pad));
    packed_.push_back(item);
}

void CudaBackend::lora_pack(std::span<const LoraPack> ops) {
    if (ops.empty()) return;
    slots_.clear();
    packed_.clear();
    kernels::LoraPackParams params;
    params.is_wide = true;
    for (const LoraPack& op : ops) add_pack(op, params);
    constexpr std::size_t most_bytes = device_memory::lora_table_cache / 4;
    if (ops.size() > 1 && slots_.size() * sizeof(kernels::LoraSlotEntry) > most_bytes) {
        lora_pack(ops.first(ops.size() / 2));
        lora_pack(ops.subspan(ops.size() / 2));
        return;
    }
    params.type = matrix_of(ops.front().b_pad).type;
    params.item_count = static_cast<std::int32_t>(packed_.size());
    std::tie(params.slots, params.items) = lora_tables_->find(slots_, packed_);
    CUDA_CHECK(kernels::lora_pack(stream_, params));
}

}  // namespace loratrain
