#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

LORATRAIN_VECTOR_CODE
void convert(const float* source, std::int64_t count, BFloat16* target) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) target[i] = to_bfloat16(source[i]);
}

LORATRAIN_VECTOR_CODE
void convert(const BFloat16* source, std::int64_t count, float* target) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) target[i] = to_float(source[i]);
}

void copy_row(const TensorView& target, std::int64_t to, const TensorView& source,
              std::int64_t from) {
    void* out = target.offset(to, 0);
    const void* in = source.offset(from, 0);
    if (target.dtype == source.dtype) {
        std::memcpy(out, in, static_cast<std::size_t>(target.cols) * target.element_size());
    } else if (target.dtype == DType::bf16) {
        convert(static_cast<const float*>(in), target.cols, static_cast<BFloat16*>(out));
    } else {
        convert(static_cast<const BFloat16*>(in), target.cols, static_cast<float*>(out));
    }
}

LORATRAIN_VECTOR_CODE
void add_values(const float* source, std::int64_t count, float* target) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) target[j] += source[j];
}

void zero_rows(const TensorView& y, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
        std::memset(y.offset(row, 0), 0, static_cast<std::size_t>(y.cols) * y.element_size());
    }
}

}  // namespace

void CpuBackend::copy(const Copy& op) {
    check_shapes(op);
    const TensorView& target = op.target;
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) copy_row(target, row, op.source, row);
    });
}

void CpuBackend::copy_heads(const CopyHeads& op) {
    check_shapes(op);
    const auto bytes = static_cast<std::size_t>(op.width) * op.target.element_size();
    for (std::int64_t row = 0; row < op.target.rows; ++row) {
        for (std::int64_t head = 0; head < op.heads; ++head) {
            std::memcpy(op.target.offset(row, head * op.target_stride),
                        op.source.offset(row, head * op.source_stride), bytes);
        }
    }
}

void CpuBackend::sum_heads(const SumHeads& op) {
    require_f32({&op.target, &op.source});
    check_shapes(op);
    const TensorView& y = op.target;
    parallel_rows(threads_, y.rows, op.source.cols, [&](std::int64_t begin, std::int64_t end) {
        zero_rows(y, begin, end);
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t head = 0; head < op.heads; ++head) {
                const float* in = op.source.f32() + row * op.source.ld + head * op.source_stride;
                add_values(in, y.cols, y.f32() + row * y.ld);
            }
        }
    });
}

void CpuBackend::add_bias(const AddBias& op) {
    const TensorView& y = op.y;
    require_f32({&y});
    const auto* in = static_cast<const float*>(op.bias);
    parallel_rows(threads_, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            add_values(in, y.cols, y.f32() + row * y.ld);
        }
    });
}

void CpuBackend::add(const Add& op) {
    const TensorView& y = op.y;
    const TensorView& x = op.x;
    require_f32({&y, &x});
    check_shapes(op);
    parallel_rows(threads_, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            float* out = y.f32() + row * y.ld;
            const float* in = x.f32() + row * x.ld;
#pragma omp simd
            for (std::int64_t j = 0; j < y.cols; ++j) out[j] += in[j];
        }
    });
}

void CpuBackend::gather_rows(const GatherRows& op) {
    check_shapes(op);
    const TensorView& y = op.y;
    parallel_rows(threads_, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            if (op.ids[row] < 0) {
                zero_rows(y, row, row + 1);
            } else {
                copy_row(y, row, op.table, op.ids[row]);
                if (op.scale != 1.0F) scale_values(y.f32() + row * y.ld, y.cols, op.scale);
            }
        }
    });
}

void CpuBackend::scatter_rows(const ScatterRows& op) {
    check_shapes(op);
    const TensorView& y = op.y;
    parallel_rows(threads_, op.x.rows + 1, y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t gap_begin = i == 0 ? 0 : op.ids[i - 1] + 1;
            const std::int64_t gap_end = i == op.x.rows ? y.rows : op.ids[i];
            zero_rows(y, gap_begin, gap_end);
            if (i < op.x.rows) copy_row(y, op.ids[i], op.x, i);
        }
    });
}

void CpuBackend::move_doubles(const MoveDoubles& op) {
    LORATRAIN_CHECK(op.target_index.size() == op.source_index.size(), "move_doubles of ",
                    op.source_index.size(), " to ", op.target_index.size(), " elements");
    for (std::size_t i = 0; i < op.target_index.size(); ++i) {
        double& out = op.target[op.target_index[i]];
        const double in = op.source[op.source_index[i]];
        out = op.add ? out + in : in;
    }
}

}  // namespace loratrain
