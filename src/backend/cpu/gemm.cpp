#include "backend/cpu/gemm.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"

namespace loratrain {

namespace {

/// Tiles depend on the shape alone, so that results do not depend on the number of threads. The
/// library is as fast on tiles of 512 rows as on whole matrices, and loses a tenth on 256.
constexpr std::int64_t tile_rows = 512;
constexpr std::int64_t tile_cols = 192;
constexpr std::int64_t narrow_tile_cols = 96;
constexpr std::int64_t enough_tiles = 8;

/// A dimension cut into nearly equal tiles of about `size`, all but the last multiples of 16.
class Cut {
  public:
    Cut(std::int64_t extent, std::int64_t size) : extent_(extent) {
        const std::int64_t pieces = std::max<std::int64_t>(1, (extent + size / 2) / size);
        size_ = ((extent + pieces - 1) / pieces + 15) / 16 * 16;
    }
    std::int64_t count() const { return (extent_ + size_ - 1) / size_; }
    std::int64_t begin(std::int64_t i) const { return i * size_; }
    std::int64_t size(std::int64_t i) const { return std::min(size_, extent_ - begin(i)); }

  private:
    std::int64_t extent_;
    std::int64_t size_;
};

const float* shifted(const GemmOperand& x, std::int64_t row, std::int64_t col) {
    return x.transpose ? x.data + col * x.ld + row : x.data + row * x.ld + col;
}

void copy_rows(const TensorView& to, const TensorView& from) {
    for (std::int64_t i = 0; i < to.rows; ++i) {
        std::copy_n(from.f32() + i * from.ld, to.cols, to.f32() + i * to.ld);
    }
}

}  // namespace

void sgemm(const GemmShape& shape, float alpha, const GemmOperand& a, const GemmOperand& b,
           float beta, float* c, std::int64_t ldc) {
    if (shape.m == 0 || shape.n == 0) return;
    if (shape.k > 0) {
        detail::library_sgemm(shape, alpha, a, b, beta, c, ldc);
        return;
    }
    for (std::int64_t i = 0; i < shape.m; ++i) {
        float* row = c + i * ldc;
        std::transform(row, row + shape.n, row,
                       [&](float value) { return beta == 0.0F ? 0.0F : beta * value; });
    }
}

void CpuBackend::gemm(const Gemm& op) {
    const GemmShape shape{op.c.rows, op.c.cols, op.transpose_a ? op.a.rows : op.a.cols};
    LORATRAIN_CHECK((op.transpose_a ? op.a.cols : op.a.rows) == shape.m &&
                        (op.transpose_b ? op.b.rows : op.b.cols) == shape.n &&
                        (op.transpose_b ? op.b.cols : op.b.rows) == shape.k,
                    "gemm: shapes of a, b and c do not fit");
    const TensorView& added = op.added();
    LORATRAIN_CHECK(added.rows == shape.m && added.cols == shape.n,
                    "gemm: shapes of c and d do not fit");
    require_f32({&op.a, &op.b, &op.c, &added});
    if (shape.m == 0 || shape.n == 0) return;
    const GemmOperand a{op.a.f32(), op.a.ld, op.transpose_a};
    const GemmOperand b{op.b.f32(), op.b.ld, op.transpose_b};
    const Cut rows(shape.m, tile_rows);
    Cut cols(shape.n, tile_cols);
    if (rows.count() * cols.count() < enough_tiles) cols = Cut(shape.n, narrow_tile_cols);
    parallel_for(threads_, rows.count() * cols.count(), [&](std::int64_t tile) {
        const std::int64_t i = tile % rows.count();
        const std::int64_t j = tile / rows.count();
        const GemmShape part{rows.size(i), cols.size(j), shape.k};
        const auto tile_of = [&](const TensorView& whole) {
            return whole.row_range(rows.begin(i), part.m).col_range(cols.begin(j), part.n);
        };
        const TensorView c = tile_of(op.c);
        if (op.beta != 0.0F && added.data != op.c.data) copy_rows(c, tile_of(added));
        sgemm(part, op.alpha, {shifted(a, rows.begin(i), 0), a.ld, a.transpose},
              {shifted(b, 0, cols.begin(j)), b.ld, b.transpose}, op.beta, c.f32(), c.ld);
    });
}

}  // namespace loratrain
