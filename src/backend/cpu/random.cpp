#include <algorithm>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout_mask.h"
#include "backend/cpu/parallel.h"
#include "base/rng.h"

namespace loratrain {

void CpuBackend::fill_random(const FillRandom& op) {
    const TensorView& target = op.target;
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        fill_random_rows(op.random, begin, target.row_range(begin, end - begin));
    });
}

void CpuBackend::draw_uniform(const DrawUniform& op) {
    constexpr std::int64_t piece = 16384;
    const std::int64_t pieces = (op.cols + piece - 1) / piece;
    parallel_for(threads_, op.rows * pieces, [&](std::int64_t i) {
        const std::int64_t row = i / pieces;
        const std::int64_t col = i % pieces * piece;
        const std::span<float> values(op.values + row * op.cols + col,
                                      static_cast<std::size_t>(std::min(piece, op.cols - col)));
        uniform_floats(op.key, static_cast<std::uint64_t>(op.first + row * op.stride + col),
                       values);
        for (float& value : values) value = (2.0F * value - 1.0F) * op.bound;
    });
}

void CpuBackend::add_noise(const AddNoise& op) {
    require_f32({&op.x});
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const DropoutRow of{op.key, op.step, static_cast<std::uint32_t>(op.sample_ids[row]),
                                static_cast<std::uint32_t>(op.positions[row])};
            add_noise_row(of, op.x.cols, op.amplitude, op.x.f32() + row * op.x.ld);
        }
    });
}

}  // namespace loratrain
