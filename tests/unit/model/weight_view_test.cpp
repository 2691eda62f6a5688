#include "model/weight_view.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/make_backend.h"
#include "base/error.h"
#include "base/rng.h"

namespace loratrain {
namespace {

constexpr MatrixShape shape{6, 10};
constexpr MatrixShape padded{8, 13};

/// The same numbers, all of them bf16's, stored in either format; resident ones beside pads.
class Matrices {
  public:
    explicit Matrices(Backend& backend) : backend_(backend) {
        scratch_ = backend.allocate(weight_layout(traits_of(WeightFormat::f32), padded).bytes, "");
        resident = store(resident_storage_, WeightFormat::f32, WeightResidence::resident, padded);
        staged = store(staged_storage_, WeightFormat::bf16, WeightResidence::staged, shape);
    }

    TensorView gemm_matrix_of(const WeightView& weights) {
        return gemm_matrix(weights, padded, scratch_.data(), backend_);
    }
    /// x W^T, x [3, 10].
    std::vector<float> product(const WeightView& weights) {
        std::vector<float> x(3 * 10);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = uniform_float(1, i) - 0.5F;
        std::vector<float> y(static_cast<std::size_t>(3 * weights.rows));
        const TensorView m =
            gemm_matrix(weights, {weights.rows, weights.cols}, scratch_.data(), backend_);
        Gemm op;
        op.a = matrix(x.data(), DType::f32, 3, weights.cols);
        op.b = m;
        op.c = matrix(y.data(), DType::f32, 3, weights.rows);
        op.transpose_b = true;
        backend_.gemm(op);
        return y;
    }

    WeightView resident;
    WeightView staged;

  private:
    WeightView store(Buffer& storage, WeightFormat format, WeightResidence residence,
                     const MatrixShape& stored) {
        storage = backend_.allocate(weight_layout(traits_of(format), stored).bytes, "");
        const WeightView view = weight_view(storage.data(), format, residence, stored, shape);
        std::vector<BFloat16> values;
        for (std::int64_t i = 0; i < shape.elements(); ++i) {
            values.push_back(to_bfloat16(uniform_float(2, static_cast<std::uint64_t>(i)) - 0.5F));
        }
        backend_.copy({view.dense(), matrix(values.data(), DType::bf16, shape.rows, shape.cols)});
        return view;
    }

    Backend& backend_;
    Buffer scratch_;
    Buffer resident_storage_;
    Buffer staged_storage_;
};

TEST(WeightView, ResidentAndStagedGiveTheSameProduct) {
    const auto backend = make_backend("cpu", {1, 0});
    Matrices test(*backend);
    const std::vector<float> product = test.product(test.resident);
    EXPECT_NE(product.front(), 0.0F);
    EXPECT_EQ(test.product(test.staged), product);
    const std::vector<float> rows = test.product(test.resident.row_range(2, 3));
    EXPECT_EQ(test.product(test.staged.row_range(2, 3)), rows);
    for (std::size_t row = 0; row < 3; ++row) {
        EXPECT_EQ(rows[row * 3], product[row * 6 + 2]);
    }
}

TEST(WeightView, CodesAreWidenedToEffectiveWeights) {
    const auto backend = make_backend("cpu", {1, 0});
    constexpr MatrixShape stored{6, 128};
    constexpr MatrixShape with_pads{8, 144};
    const Buffer scratch =
        backend->allocate(weight_layout(traits_of(WeightFormat::f32), with_pads).bytes, "");
    for (const WeightFormat format :
         {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3, WeightFormat::e4m3_block}) {
        const WeightTraits& traits = traits_of(format);
        const WeightLayout layout = weight_layout(traits, stored);
        std::vector<char> host(layout.bytes);
        auto* codes = reinterpret_cast<std::uint8_t*>(host.data());
        auto* scales = reinterpret_cast<float*>(host.data() + layout.scales);
        std::vector<float> row(128);
        for (std::int64_t i = 0; i < stored.rows; ++i) {
            for (std::size_t j = 0; j < row.size(); ++j) {
                row[j] = uniform_float(3, static_cast<std::uint64_t>(i) * 128 + j) - 0.5F;
            }
            quantize_row(format, row,
                         codes + static_cast<std::uint64_t>(i) * code_bytes(traits, 128),
                         scales + i * scale_count(traits, 128));
        }
        const WeightView view = weight_view(host.data(), format, WeightResidence::staged, stored,
                                            stored, SourceType::bf16);
        const TensorView wide = gemm_matrix(view, with_pads, scratch.data(), *backend);
        const TensorView part = matrix(scratch.data(), DType::f32, 2, 128);
        for (std::int64_t i = 0; i < stored.rows; ++i) {
            effective_row(view.quantized(), i, row.data());
            EXPECT_TRUE(std::equal(row.begin(), row.end(), wide.f32() + i * 144)) << traits.name;
        }
        gemm_matrix(view.row_range(4, 2), {2, 128}, scratch.data(), *backend);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), part.f32() + 128)) << traits.name;
        EXPECT_THROW(view.dense(), Error);
    }
}

TEST(WeightView, ResidentWeightsAreReadWhereTheyAre) {
    const auto backend = make_backend("cpu", {1, 0});
    Matrices test(*backend);
    const TensorView read = test.gemm_matrix_of(test.resident);
    EXPECT_EQ(read.data, test.resident.codes);
    const TensorView wide = test.gemm_matrix_of(test.staged);
    EXPECT_NE(wide.data, test.staged.codes);
    for (const TensorView& matrix : {read, wide}) {
        EXPECT_EQ(matrix.dtype, DType::f32);
        EXPECT_EQ(matrix.rows, padded.rows);
        EXPECT_EQ(matrix.cols, padded.cols);
        EXPECT_EQ(matrix.ld, padded.cols);
    }
}

}  // namespace
}  // namespace loratrain
