#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

LORATRAIN_VECTOR_CODE
void copy_finite(const float* source, std::int64_t count, float* target) {
    std::transform(source, source + count, target,
                   [](float value) { return std::isfinite(value) ? value : 0.0F; });
}

void pack_b_row(const LoraPack& op, std::int64_t row) {
    float* out = op.b_pad.f32() + row * op.b_pad.ld;
    std::fill_n(out, op.b_pad.cols, 0.0F);
    for (const LoraSlot& slot : op.slots) {
        if (slot.rank == 0) continue;
        copy_finite(slot.b + row * slot.rank, slot.rank, out + op.first + slot.column);
    }
}

void pack_a_row(const LoraPack& op, std::int64_t row) {
    const std::int64_t cols = op.a_pad.cols;
    float* out = op.a_pad.f32() + row * op.a_pad.ld;
    const auto owner = std::find_if(op.slots.begin(), op.slots.end(), [&](const LoraSlot& slot) {
        return row >= slot.column && row < slot.column + slot.rank;
    });
    if (owner == op.slots.end()) {
        std::fill_n(out, cols, 0.0F);
    } else {
        copy_finite(owner->a + (row - owner->column) * cols, cols, out);
    }
}

void pack_all_rows(int threads, const LoraPack& op) {
    LORATRAIN_CHECK(op.first >= 0 && op.first + op.a_pad.rows <= op.b_pad.cols,
                    "lora_pack: columns [", op.first, ", ", op.first + op.a_pad.rows, ") of ",
                    op.b_pad.cols);
    parallel_rows(threads, op.b_pad.rows, op.b_pad.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) pack_b_row(op, row);
    });
    parallel_rows(threads, op.a_pad.rows, op.a_pad.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) pack_a_row(op, row);
    });
}

}  // namespace

void CpuBackend::lora_pack(std::span<const LoraPack> ops) {
    for (const LoraPack& op : ops) {
        require_f32({&op.b_pad, &op.a_pad});
        pack_all_rows(threads_, op);
    }
}

}  // namespace loratrain
