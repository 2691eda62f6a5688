#include "backend/ops/token_rows.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "kernels/token_rows.h"

namespace loratrain {

namespace {

/// visit(segment, table) of all tokens of a segment's slot that are not other lanes', some
/// neighbours at a time.
template <class Visit>
void for_each_table(const TokenRows& of, std::int64_t hidden, float scale, const Visit& visit) {
    for (const LoraSegment& segment : of.segments) {
        const TokenSlot& slot = of.slots[static_cast<std::size_t>(segment.slot)];
        const auto is_here = [](std::int32_t token) { return token >= 0; };
        const auto end = slot.tokens.end();
        for (auto first = std::find_if(slot.tokens.begin(), end, is_here); first != end;) {
            const auto most = std::min<std::ptrdiff_t>(end - first, kernels::most_tokens_at_once);
            const auto last = std::find_if_not(first, first + most, is_here);
            const std::int64_t place = (first - slot.tokens.begin()) * hidden;
            kernels::TokenTable table;
            std::copy(first, last, table.tokens);
            table.count = static_cast<std::int32_t>(last - first);
            table.rows = slot.rows + place;
            table.gradient = slot.gradient + place;
            table.scale = scale;
            visit(segment, table);
            first = std::find_if(last, end, is_here);
        }
    }
}

kernels::Matrix rows_of(const TensorView& x, const LoraSegment& segment) {
    return matrix_of(x.row_range(segment.begin, segment.end - segment.begin));
}

}  // namespace

void CudaBackend::place_tokens(const PlaceTokens& op) {
    require_compute({&op.x});
    for_each_table(op.of, op.x.cols, op.scale, [&](const auto& segment, const auto& table) {
        CUDA_CHECK(
            kernels::place_tokens(stream_, table, op.ids + segment.begin, rows_of(op.x, segment)));
    });
}

void CudaBackend::place_tokens_backward(const PlaceTokens& op) {
    require_compute({&op.x});
    for_each_table(op.of, op.x.cols, op.scale, [&](const auto& segment, const auto& table) {
        CUDA_CHECK(kernels::place_tokens_backward(stream_, table, op.ids + segment.begin, op.still,
                                                  rows_of(op.x, segment)));
    });
}

void CudaBackend::token_logits(const TokenLogits& op) {
    require_compute({&op.x, &op.logits});
    for_each_table(op.of, op.x.cols, op.scale, [&](const auto& segment, const auto& table) {
        CUDA_CHECK(kernels::token_logits(stream_, table, rows_of(op.x, segment),
                                         rows_of(op.logits, segment)));
    });
}

void CudaBackend::token_logits_backward(const TokenLogitsBackward& op) {
    require_compute({&op.x, &op.d_logits, &op.dx});
    const std::size_t size = op.dx.element_size();
    CUDA_CHECK(cudaMemset2DAsync(op.dx.data, static_cast<std::size_t>(op.dx.ld) * size, 0,
                                 static_cast<std::size_t>(op.dx.cols) * size,
                                 static_cast<std::size_t>(op.dx.rows), stream_));
    for_each_table(op.of, op.x.cols, op.scale, [&](const auto& segment, const auto& table) {
        CUDA_CHECK(kernels::token_logits_backward(stream_, table, rows_of(op.x, segment),
                                                  rows_of(op.d_logits, segment),
                                                  rows_of(op.dx, segment)));
    });
}

}  // namespace loratrain
