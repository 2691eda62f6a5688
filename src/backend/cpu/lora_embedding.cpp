#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace loratrain {

namespace {

float* own_columns(const LoraIds& op, const LoraSlot& slot, std::int64_t row) {
    return op.target.s.f32() + row * op.target.s.ld + slot.column;
}

}  // namespace

void CpuBackend::lora_gather_a(const LoraIds& op) {
    require_f32({&op.target.s});
    for (const LoraSegment& segment : op.rows.segments) {
        const LoraSlot& slot = op.target.slots[static_cast<std::size_t>(segment.slot)];
        for (std::int64_t row = segment.begin; row < segment.end; ++row) {
            std::fill_n(op.target.s.f32() + row * op.target.s.ld, op.target.s.cols, 0.0F);
            if (op.ids[row] < 0) continue;
            float* s = own_columns(op, slot, row);
            for (std::int32_t i = 0; i < slot.rank; ++i) {
                s[i] = slot.scale * slot.a[i * op.columns + op.ids[row]];
            }
        }
    }
}

void CpuBackend::lora_scatter_a(const LoraIds& op) {
    require_f32({&op.target.s});
    for (const LoraSegment& segment : op.rows.segments) {
        const LoraSlot& slot = op.target.slots[static_cast<std::size_t>(segment.slot)];
        parallel_for(threads_, slot.rank, [&](std::int64_t i) {
            float* gradient = slot.grad_a + i * op.columns;
            for (std::int64_t row = segment.begin; row < segment.end; ++row) {
                if (op.ids[row] < 0 || op.ids[row] == op.still) continue;
                gradient[op.ids[row]] += own_columns(op, slot, row)[i];
            }
        });
    }
}

}  // namespace loratrain
