#include "model/frozen_weights.h"

#include <gtest/gtest.h>

#include "unit/model/small_stage.h"

namespace loratrain {
namespace {

using test::small_adapter;
using test::small_model;
using test::SmallCase;

/// The same weights through read_rows alone, as from a file.
class AsIfFromFile : public WeightSource {
  public:
    explicit AsIfFromFile(const WeightSource& source) : source_(source) {}
    const ModelSpec& spec() const override { return source_.spec(); }
    std::string checksum() const override { return source_.checksum(); }
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override {
        source_.read_rows(name, first_row, target);
    }

  private:
    const WeightSource& source_;
};

std::vector<char> bytes_of(Backend& backend, const TensorView& view) {
    const TensorView whole = matrix(view.data, view.dtype, view.rows, view.ld);
    std::vector<char> bytes(static_cast<std::size_t>(whole.numel()) * whole.element_size());
    backend.download(bytes.data(), whole.data, bytes.size());
    return bytes;
}

TEST(FrozenWeights, FilledInPlaceAreThoseReadRowByRow) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        const SmallCase test_case(small_model(), {small_adapter("a", 5)}, 1, precision);
        const StagePlan& stage = test_case.plan.replicas[0].stages[0];
        const auto backend = make_backend("cpu", {1, 0});
        const AsIfFromFile file(*test_case.weights);
        ASSERT_TRUE(test_case.weights->random_matrix("lm_head.weight"));
        FrozenWeights filled(only_replica(test_case.plan), stage, *test_case.weights, *backend);
        FrozenWeights read(only_replica(test_case.plan), stage, file, *backend);
        for (std::int32_t l = 0; l < stage.layer_count; ++l) {
            const LayerWeights& a = filled.layer(l);
            const LayerWeights& b = read.layer(l);
            for (std::size_t g = 0; g < a.groups.size(); ++g) {
                EXPECT_EQ(bytes_of(*backend, a.groups[g].matrix.view.dense()),
                          bytes_of(*backend, b.groups[g].matrix.view.dense()));
            }
            const TensorView norm = matrix(a.input_norm.data(), DType::f32, 1, 32);
            const TensorView same = matrix(b.input_norm.data(), DType::f32, 1, 32);
            EXPECT_EQ(bytes_of(*backend, norm), bytes_of(*backend, same));
        }
        EXPECT_EQ(bytes_of(*backend, filled.embedding().dense()),
                  bytes_of(*backend, read.embedding().dense()));
        EXPECT_EQ(bytes_of(*backend, filled.head().dense()),
                  bytes_of(*backend, read.head().dense()));
    }
}

}  // namespace
}  // namespace loratrain
