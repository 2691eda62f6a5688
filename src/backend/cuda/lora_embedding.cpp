#include "kernels/lora/lora.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

template <class Visit>
void for_each_segment(const LoraIds& op, const Visit& visit) {
    for (const LoraSegment& segment : op.rows.segments) {
        const LoraSlot& slot = op.target.slots[static_cast<std::size_t>(segment.slot)];
        kernels::LoraIdsParams params;
        params.s = matrix_of(op.target.s.row_range(segment.begin, segment.end - segment.begin));
        params.ids = op.ids + segment.begin;
        params.a = slot.a;
        params.grad_a = slot.grad_a;
        params.columns = op.columns;
        params.still = op.still;
        params.rank = slot.rank;
        params.column = slot.column;
        params.scale = slot.scale;
        visit(params);
    }
}

}  // namespace

void CudaBackend::lora_gather_a(const LoraIds& op) {
    require_compute({&op.target.s});
    for_each_segment(op, [&](const kernels::LoraIdsParams& params) {
        CUDA_CHECK(kernels::lora_gather_a(stream_, params));
    });
}

void CudaBackend::lora_scatter_a(const LoraIds& op) {
    require_compute({&op.target.s});
    for_each_segment(op, [&](const kernels::LoraIdsParams& params) {
        CUDA_CHECK(kernels::lora_scatter_a(stream_, params));
    });
}

}  // namespace loratrain
