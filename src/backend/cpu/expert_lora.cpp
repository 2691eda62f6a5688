#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"

namespace loratrain {

namespace {

/// Rows of one expert and segment, which follow each other.
struct ExpertRows {
    std::int64_t expert = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

ExpertRows rows_of_pair(const ExpertRoutes& routes, std::int64_t expert,
                        const LoraSegment& segment) {
    const std::int32_t* begin = routes.rows + routes.offsets[expert];
    const std::int32_t* end = routes.rows + routes.offsets[expert + 1];
    const std::int32_t* first = std::lower_bound(begin, end, segment.begin);
    return {expert, first - routes.rows, std::lower_bound(first, end, segment.end) - first};
}

/// body(slot, rows) for each expert and segment with a rank and rows.
template <class Body>
void for_expert_rows(int threads, const ExpertLora& op, const Body& body) {
    const auto segments = std::ssize(op.rows.segments);
    parallel_for(threads, op.routes.experts * segments, [&](std::int64_t i) {
        const LoraSegment& segment = op.rows.segments[static_cast<std::size_t>(i % segments)];
        const LoraSlot& slot = op.slots[static_cast<std::size_t>(segment.slot)];
        if (slot.rank == 0) return;
        const ExpertRows rows = rows_of_pair(op.routes, i / segments, segment);
        if (rows.count > 0) body(slot, rows);
    });
}

float* at_row(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

/// The wide rows of `rows`: where they lie, or as a copy in `gathered`.
GemmOperand wide_of(const ExpertLora& op, const ExpertRows& rows, std::vector<float>& gathered) {
    if (!op.gathered) return {at_row(op.wide, rows.begin), op.wide.ld, false};
    gathered.resize(static_cast<std::size_t>(rows.count * op.wide.cols));
    for (std::int64_t i = 0; i < rows.count; ++i) {
        std::copy_n(at_row(op.wide, op.routes.rows[rows.begin + i]), op.wide.cols,
                    gathered.data() + i * op.wide.cols);
    }
    return {gathered.data(), op.wide.cols, false};
}

/// M_e of a slot as [rank, N]; or with `turned` as [N, rank].
GemmOperand factor_of(const ExpertLora& op, const LoraSlot& slot, std::int64_t expert,
                      bool turned) {
    const std::int64_t values = expert * slot.rank * op.wide.cols;
    if (op.of_b) return {slot.b + values, slot.rank, !turned};
    return {slot.a + values, op.wide.cols, turned};
}

}  // namespace

void CpuBackend::narrow_experts(ExpertLoras ops) {
    for (const ExpertLora& op : ops) {
        check_shapes(op);
        require_f32({&op.wide, &op.narrow});
    }
    for (std::int64_t row = 0; !ops.empty() && row < ops.front().narrow.rows; ++row) {
        std::fill_n(at_row(ops.front().narrow, row), ops.front().narrow.cols, 0.0F);
    }
    for (const ExpertLora& op : ops) {
        for_expert_rows(threads_, op, [&](const LoraSlot& slot, const ExpertRows& rows) {
            std::vector<float> gathered;
            sgemm({rows.count, slot.rank, op.wide.cols}, slot.scale, wide_of(op, rows, gathered),
                  factor_of(op, slot, rows.expert, true), 0.0F,
                  at_row(op.narrow, rows.begin) + slot.column, op.narrow.ld);
        });
    }
}

void CpuBackend::widen_experts(const ExpertLora& op) {
    check_shapes(op);
    require_f32({&op.wide, &op.narrow});
    for_expert_rows(threads_, op, [&](const LoraSlot& slot, const ExpertRows& rows) {
        sgemm({rows.count, op.wide.cols, slot.rank}, 1.0F,
              {at_row(op.narrow, rows.begin) + slot.column, op.narrow.ld, false},
              factor_of(op, slot, rows.expert, false), 1.0F, at_row(op.wide, rows.begin),
              op.wide.ld);
    });
}

void CpuBackend::add_expert_grads(ExpertLoras ops) {
    for (const ExpertLora& op : ops) {
        check_shapes(op);
        require_f32({&op.wide, &op.narrow});
        for_expert_rows(threads_, op, [&](const LoraSlot& slot, const ExpertRows& rows) {
            const std::int64_t values = rows.expert * slot.rank * op.wide.cols;
            std::vector<float> gathered;
            GemmOperand wide = wide_of(op, rows, gathered);
            const float* narrow = at_row(op.narrow, rows.begin) + slot.column;
            if (op.of_b) {
                wide.transpose = true;
                sgemm({op.wide.cols, slot.rank, rows.count}, 1.0F, wide,
                      {narrow, op.narrow.ld, false}, 1.0F, slot.grad_b + values, slot.rank);
            } else {
                sgemm({slot.rank, op.wide.cols, rows.count}, 1.0F, {narrow, op.narrow.ld, true},
                      wide, 1.0F, slot.grad_a + values, op.wide.cols);
            }
        });
    }
}

}  // namespace loratrain
