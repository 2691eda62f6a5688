#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout_mask.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "base/arithmetic.h"
#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t rows_per_block = 128;
constexpr std::int64_t cols_per_block = 512;
constexpr std::int64_t mask_scratch = rows_per_block * cols_per_block;

std::int64_t blocks_of(std::int64_t cols) {
    return ceil_div(cols, cols_per_block);
}

bool any_dropout(std::span<const LoraTarget> targets) {
    return std::any_of(targets.begin(), targets.end(), [](const LoraTarget& target) {
        return std::any_of(target.slots.begin(), target.slots.end(),
                           [](const LoraSlot& slot) { return slot.rank > 0 && slot.dropout > 0; });
    });
}

DropoutRow dropout_row(const LoraSlot& slot, const LoraSegment& segment, const PackedRows& rows,
                       std::int64_t row) {
    return {slot.dropout_key, segment.step, static_cast<std::uint32_t>(rows.sample_ids[row]),
            static_cast<std::uint32_t>(rows.positions[row]), slot.dropout};
}

void zero_rows(const TensorView& x, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
        std::fill_n(x.f32() + row * x.ld, x.cols, 0.0F);
    }
}

/// scratch [end - begin, cols] (stride cols_per_block) = drop(X) at columns first...
void drop_block(const LoraSlot& slot, const LoraRowBlock& block, const PackedRows& rows,
                const TensorView& x, std::int64_t first, std::int64_t cols, float* scratch) {
    for (std::int64_t row = block.begin; row < block.end; ++row) {
        drop_row(dropout_row(slot, *block.segment, rows, row), slot.dropout_column + first, cols,
                 x.f32() + row * x.ld + first, scratch + (row - block.begin) * cols_per_block);
    }
}

void shrink_block(const LoraShrink& op, const LoraTarget& target, const LoraRowBlock& block,
                  float* scratch) {
    zero_rows(target.s, block.begin, block.end);
    if (block.segment == nullptr) return;
    const LoraSlot& slot = target.slots[block.segment->slot];
    if (slot.rank == 0) return;
    float* s = target.s.f32() + block.begin * target.s.ld + slot.column;
    const std::int64_t rows = block.end - block.begin;
    if (slot.dropout == 0) {
        sgemm({rows, slot.rank, op.x.cols}, slot.scale,
              {op.x.f32() + block.begin * op.x.ld, op.x.ld, false}, {slot.a, op.x.cols, true}, 0.0F,
              s, target.s.ld);
        return;
    }
    for (std::int64_t first = 0; first < op.x.cols; first += cols_per_block) {
        const std::int64_t cols = std::min(cols_per_block, op.x.cols - first);
        drop_block(slot, block, op.rows.rows, op.x, first, cols, scratch);
        sgemm({rows, slot.rank, cols}, slot.scale, {scratch, cols_per_block, false},
              {slot.a + first, op.x.cols, true}, first == 0 ? 0.0F : 1.0F, s, target.s.ld);
    }
}

void expand_backward_block(const LoraExpandBackward& op, const LoraTarget& target,
                           const LoraRowBlock& block, float* scratch) {
    const LoraSlot& slot = target.slots[block.segment->slot];
    if (slot.rank == 0) return;
    const std::int64_t rows = block.end - block.begin;
    const GemmOperand ds{target.s.f32() + block.begin * target.s.ld + slot.column, target.s.ld,
                         false};
    float* dx = op.dx.f32() + block.begin * op.dx.ld;
    if (slot.dropout == 0) {
        sgemm({rows, op.dx.cols, slot.rank}, 1.0F, ds, {slot.a, op.dx.cols, false}, 1.0F, dx,
              op.dx.ld);
        return;
    }
    for (std::int64_t first = 0; first < op.dx.cols; first += cols_per_block) {
        const std::int64_t cols = std::min(cols_per_block, op.dx.cols - first);
        sgemm({rows, cols, slot.rank}, 1.0F, ds, {slot.a + first, op.dx.cols, false}, 0.0F, scratch,
              cols_per_block);
        for (std::int64_t row = block.begin; row < block.end; ++row) {
            add_dropped_row(dropout_row(slot, *block.segment, op.rows.rows, row),
                            slot.dropout_column + first, cols,
                            scratch + (row - block.begin) * cols_per_block,
                            op.dx.f32() + row * op.dx.ld + first);
        }
    }
}

/// With this segment, its first that has rows.
bool begins_gradients(const LoraSlot& slot, std::span<const LoraSegment> segments,
                      const LoraSegment& segment) {
    if (!slot.begins_gradients || segment.begin == segment.end) return false;
    const auto first = std::find_if(segments.begin(), segments.end(), [&](const LoraSegment& one) {
        return one.slot == segment.slot && one.begin < one.end;
    });
    return &*first == &segment;
}

/// grad_b rows [first, first + cols) += dYᵀ S over the segments of one slot, in their order.
void add_grad_b(const LoraBackward& op, std::int64_t slot_index, std::int64_t first,
                std::int64_t cols) {
    const LoraSlot& slot = op.target.slots[slot_index];
    for (const LoraSegment& segment : op.rows.segments) {
        if (segment.slot != slot_index) continue;
        if (begins_gradients(slot, op.rows.segments, segment)) {
            std::fill_n(slot.grad_b + first * slot.rank, cols * slot.rank, 0.0F);
        }
        const TensorView& s = op.target.s;
        sgemm({cols, slot.rank, segment.end - segment.begin}, 1.0F,
              {op.dy.f32() + segment.begin * op.dy.ld + first, op.dy.ld, true},
              {s.f32() + segment.begin * s.ld + slot.column, s.ld, false}, 1.0F,
              slot.grad_b + first * slot.rank, slot.rank);
    }
}

struct GradAScratch {
    float* dropped;
    float* sums;  ///< [largest rank, cols_per_block], only with a weight
};

std::int64_t largest_rank(std::span<const LoraTarget> targets) {
    std::int64_t largest = 0;
    for (const LoraTarget& target : targets) {
        for (const LoraSlot& slot : target.slots) {
            largest = std::max<std::int64_t>(largest, slot.rank);
        }
    }
    return largest;
}

/// grad_a columns from `first` on += sums times the weight.
void add_weighted(const LoraGradA& op, const LoraSlot& slot, std::int64_t first, std::int64_t cols,
                  const float* sums) {
    const float* weight = static_cast<const float*>(op.weight) + first;
    for (std::int32_t r = 0; r < slot.rank; ++r) {
        float* gradient = slot.grad_a + r * op.x.cols + first;
        const float* sum = sums + r * cols_per_block;
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) {
            gradient[j] += sum[j] * (weight[j] + op.weight_offset);
        }
    }
}

/// grad_a columns [first, first + cols) += dSᵀ drop(X) over the rows of one segment.
void add_grad_a(const LoraGradA& op, const LoraTarget& target, const LoraSegment& segment,
                std::int64_t first, std::int64_t cols, const GradAScratch& scratch) {
    const LoraSlot& slot = target.slots[segment.slot];
    for (std::int32_t r = 0; begins_gradients(slot, op.rows.segments, segment) && r < slot.rank;
         ++r) {
        std::fill_n(slot.grad_a + r * op.x.cols + first, cols, 0.0F);
    }
    if (segment.begin == segment.end) return;
    const bool weighted = op.weight != nullptr;
    float* sums = weighted ? scratch.sums : slot.grad_a + first;
    const std::int64_t ld = weighted ? cols_per_block : op.x.cols;
    const std::int64_t step =
        slot.dropout == 0 ? std::max<std::int64_t>(1, segment.end - segment.begin) : rows_per_block;
    for (std::int64_t begin = segment.begin; begin < segment.end; begin += step) {
        const LoraRowBlock block{begin, std::min(segment.end, begin + step), &segment};
        GemmOperand x{op.x.f32() + begin * op.x.ld + first, op.x.ld, false};
        if (slot.dropout > 0) {
            drop_block(slot, block, op.rows.rows, op.x, first, cols, scratch.dropped);
            x = {scratch.dropped, cols_per_block, false};
        }
        sgemm({slot.rank, cols, block.end - block.begin}, 1.0F,
              {target.s.f32() + begin * target.s.ld + slot.column, target.s.ld, true}, x,
              weighted && begin == segment.begin ? 0.0F : 1.0F, sums, ld);
    }
    if (weighted) add_weighted(op, slot, first, cols, sums);
}

}  // namespace

void CpuBackend::cut_lora_rows(const LoraRows& lora, std::int64_t rows) {
    lora_blocks_.clear();
    const auto cut = [&](std::int64_t begin, std::int64_t end, const LoraSegment* segment) {
        for (std::int64_t row = begin; row < end; row += rows_per_block) {
            lora_blocks_.push_back({row, std::min(end, row + rows_per_block), segment});
        }
    };
    std::int64_t done = 0;
    for (const LoraSegment& segment : lora.segments) {
        LORATRAIN_CHECK(
            segment.begin >= done && segment.end >= segment.begin && segment.end <= rows,
            "LoRA segment [", segment.begin, ", ", segment.end, ") of ", rows, " rows");
        cut(done, segment.begin, nullptr);
        cut(segment.begin, segment.end, &segment);
        done = segment.end;
    }
    cut(done, rows, nullptr);
}

void CpuBackend::lora_shrink(const LoraShrink& op) {
    require_f32({&op.x});
    cut_lora_rows(op.rows, op.x.rows);
    const ThreadScratch scratch = reserve_scratch(any_dropout(op.targets) ? mask_scratch : 0);
    parallel_for(threads_, static_cast<std::int64_t>(lora_blocks_.size()), [&](std::int64_t i) {
        for (const LoraTarget& target : op.targets) {
            shrink_block(op, target, lora_blocks_[i], scratch.local());
        }
    });
    if (op.again.data == nullptr) return;
    std::int64_t column = 0;
    for (const LoraTarget& target : op.targets) {
        if (column >= op.again.cols) break;
        copy({op.again.col_range(column, target.s.cols), target.s});
        column += target.s.cols;
    }
}

void CpuBackend::lora_expand(const LoraExpand& op) {
    require_f32({&op.y, &op.target.s});
    cut_lora_rows(op.rows, op.y.rows);
    const TensorView& s = op.target.s;
    parallel_for(threads_, static_cast<std::int64_t>(lora_blocks_.size()), [&](std::int64_t i) {
        const LoraRowBlock& block = lora_blocks_[i];
        if (block.segment == nullptr) return;
        const LoraSlot& slot = op.target.slots[block.segment->slot];
        if (slot.rank == 0) return;
        sgemm({block.end - block.begin, op.y.cols, slot.rank}, 1.0F,
              {s.f32() + block.begin * s.ld + slot.column, s.ld, false}, {slot.b, slot.rank, true},
              1.0F, op.y.f32() + block.begin * op.y.ld, op.y.ld);
    });
}

void CpuBackend::lora_backward(const LoraBackward& op) {
    require_f32({&op.dy, &op.ds, &op.target.s});
    cut_lora_rows(op.rows, op.dy.rows);
    parallel_for(threads_, static_cast<std::int64_t>(lora_blocks_.size()), [&](std::int64_t i) {
        const LoraRowBlock& block = lora_blocks_[i];
        zero_rows(op.ds, block.begin, block.end);
        if (block.segment == nullptr) return;
        const LoraSlot& slot = op.target.slots[block.segment->slot];
        if (slot.rank == 0) return;
        sgemm({block.end - block.begin, slot.rank, op.dy.cols}, slot.scale,
              {op.dy.f32() + block.begin * op.dy.ld, op.dy.ld, false}, {slot.b, slot.rank, false},
              0.0F, op.ds.f32() + block.begin * op.ds.ld + slot.column, op.ds.ld);
    });
    const auto slots = static_cast<std::int64_t>(op.target.slots.size());
    parallel_for(threads_, slots * blocks_of(op.dy.cols), [&](std::int64_t i) {
        const std::int64_t first = i / slots * cols_per_block;
        if (op.target.slots[i % slots].rank == 0) return;
        add_grad_b(op, i % slots, first, std::min(cols_per_block, op.dy.cols - first));
    });
}

void CpuBackend::lora_backward_group(std::span<const LoraBackward> ops) {
    for (const LoraBackward& op : ops) lora_backward(op);
}

void CpuBackend::lora_gated_forward(const LoraGatedForward& op) {
    run_in_parts(*this, op);
}

void CpuBackend::lora_gated_backward(const LoraGatedBackward& op) {
    run_in_parts(*this, op);
}

void CpuBackend::lora_grad_a(const LoraGradA& op) {
    require_f32({&op.x});
    const std::int64_t dropped = any_dropout(op.targets) ? mask_scratch : 0;
    const std::int64_t sums = op.weight == nullptr ? 0 : largest_rank(op.targets) * cols_per_block;
    const ThreadScratch scratch = reserve_scratch(dropped + sums);
    const auto targets = static_cast<std::int64_t>(op.targets.size());
    parallel_for(threads_, targets * blocks_of(op.x.cols), [&](std::int64_t i) {
        const LoraTarget& target = op.targets[i % targets];
        const std::int64_t first = i / targets * cols_per_block;
        const std::int64_t cols = std::min(cols_per_block, op.x.cols - first);
        for (const LoraSegment& segment : op.rows.segments) {
            if (target.slots[segment.slot].rank == 0) continue;
            float* own = scratch.local();
            add_grad_a(op, target, segment, first, cols, {own, own + dropped});
        }
    });
}

void CpuBackend::lora_expand_backward(const LoraExpandBackward& op) {
    require_f32({&op.dx});
    cut_lora_rows(op.rows, op.dx.rows);
    const ThreadScratch scratch = reserve_scratch(any_dropout(op.targets) ? mask_scratch : 0);
    parallel_for(threads_, static_cast<std::int64_t>(lora_blocks_.size()), [&](std::int64_t i) {
        const LoraRowBlock& block = lora_blocks_[i];
        if (!op.accumulate) zero_rows(op.dx, block.begin, block.end);
        if (block.segment == nullptr) return;
        for (const LoraTarget& target : op.targets) {
            expand_backward_block(op, target, block, scratch.local());
        }
    });
}

}  // namespace loratrain
