#include <algorithm>
#include <array>
#include <bit>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t decoded_rows = 128;
constexpr std::int64_t transposed_rows = 64;

float element(const TensorView& x, std::int64_t row, std::int64_t col) {
    if (x.dtype == DType::f32) return x.f32()[row * x.ld + col];
    return to_float(static_cast<const BFloat16*>(x.data)[row * x.ld + col]);
}

std::uint32_t magnitude_bits(float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

LORATRAIN_VECTOR_CODE
void quantize_row(const QuantizeRows& op, std::int64_t row) {
    const auto value_at = [&](std::int64_t col) {
        const float value = element(op.x, row, col);
        return op.column_scales == nullptr ? value : value * op.column_scales[col];
    };
    // By their bits, so that NaN is above infinity, and infinity above all numbers.
    std::uint32_t largest = 0;
    for (std::int64_t col = 0; col < op.x.cols; ++col) {
        largest = std::max(largest, magnitude_bits(value_at(col)));
    }
    const RowCoding coding = row_coding(std::bit_cast<float>(largest));
    std::uint8_t* codes = op.to.codes + row * op.to.ld;
    for (std::int64_t col = 0; col < op.x.cols; ++col) {
        codes[col] = to_e4m3(value_at(col) * coding.inverse);
    }
    op.to.scales[row] = coding.scale;
}

LORATRAIN_VECTOR_CODE
void decode(const Fp8Rows& rows, float* target) {
    static const auto table = [] {
        std::array<float, 256> values{};
        for (std::size_t code = 0; code < values.size(); ++code) {
            values[code] = from_e4m3(static_cast<std::uint8_t>(code));
        }
        return values;
    }();
    for (std::int64_t row = 0; row < rows.rows; ++row) {
        const std::uint8_t* codes = rows.codes + row * rows.ld;
        float* decoded = target + row * rows.cols;
        std::transform(codes, codes + rows.cols, decoded,
                       [&](std::uint8_t code) { return table[code]; });
    }
}

/// c = a.scales b.scales sums + beta d of one tile; sums: [c.rows, c.cols].
LORATRAIN_VECTOR_CODE
void add_scaled(const GemmFp8& op, const float* sums) {
    for (std::int64_t i = 0; i < op.c.rows; ++i) {
        float* c = op.c.f32() + i * op.c.ld;
        const float* d = op.added().f32() + i * op.added().ld;
        for (std::int64_t j = 0; j < op.c.cols; ++j) {
            const float value = op.a.scales[i] * op.b.scales[j] * sums[i * op.c.cols + j];
            c[j] = op.beta == 0.0F ? value : value + op.beta * d[j];
        }
    }
}

}  // namespace

void CpuBackend::quantize_rows(const QuantizeRows& op) {
    check_shapes(op);
    parallel_for(threads_, op.x.rows, [&](std::int64_t row) { quantize_row(op, row); });
}

void CpuBackend::make_codes(const RowCodes& codes, const TensorView& written) {
    if (codes.are_wanted()) quantize_rows({written, codes.column_scales, codes.to});
}

void CpuBackend::transpose_codes(const TransposeCodes& op) {
    check_shapes(op);
    const Fp8Rows& to = op.to;
    const Fp8Rows& from = op.from;
    const std::int64_t blocks = (to.rows + transposed_rows - 1) / transposed_rows;
    parallel_for(threads_, blocks, [&](std::int64_t block) {
        const std::int64_t end = std::min(to.rows, (block + 1) * transposed_rows);
        for (std::int64_t i = 0; i < from.rows; ++i) {
            for (std::int64_t j = block * transposed_rows; j < end; ++j) {
                to.codes[j * to.ld + i] = from.codes[i * from.ld + j];
            }
        }
    });
}

void CpuBackend::gemm_fp8(const GemmFp8& op) {
    const TensorView& added = op.added();
    require_f32({&op.c, &added});
    LORATRAIN_CHECK(op.a.rows == op.c.rows && op.b.rows == op.c.cols && op.a.cols == op.b.cols &&
                        added.rows == op.c.rows && added.cols == op.c.cols,
                    "gemm_fp8: shapes of a, b, c and d do not fit");
    const std::int64_t k = op.a.cols;
    const ThreadScratch scratch = reserve_scratch(decoded_rows * (2 * k + decoded_rows));
    const std::int64_t row_tiles = (op.c.rows + decoded_rows - 1) / decoded_rows;
    const std::int64_t col_tiles = (op.c.cols + decoded_rows - 1) / decoded_rows;
    parallel_for(threads_, row_tiles * col_tiles, [&](std::int64_t tile) {
        const std::int64_t row = tile % row_tiles * decoded_rows;
        const std::int64_t col = tile / row_tiles * decoded_rows;
        const std::int64_t m = std::min(decoded_rows, op.c.rows - row);
        const std::int64_t n = std::min(decoded_rows, op.c.cols - col);
        GemmFp8 part = op;
        part.a = op.a.row_range(row, m);
        part.b = op.b.row_range(col, n);
        part.c = op.c.row_range(row, m).col_range(col, n);
        part.d = added.row_range(row, m).col_range(col, n);
        float* a = scratch.local();
        float* b = a + decoded_rows * k;
        float* sums = b + decoded_rows * k;
        decode(part.a, a);
        decode(part.b, b);
        sgemm({m, n, k}, 1.0F, {a, k, false}, {b, k, true}, 0.0F, sums, n);
        add_scaled(part, sums);
    });
}

void CpuBackend::dequantize(const Dequantize& op) {
    const TensorView& target = op.target;
    require_f32({&target});
    check_shapes(op);
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            effective_row(op.weights, row, target.f32() + row * target.ld);
        }
    });
}

}  // namespace loratrain
