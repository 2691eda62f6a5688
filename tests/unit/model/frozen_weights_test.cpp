#include "model/frozen_weights.h"

#include <gtest/gtest.h>

#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

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
            const TensorView norm =
                matrix(a.tensor(LayerTensor::norm_before_mixer).data(), DType::f32, 1, 32);
            const TensorView same =
                matrix(b.tensor(LayerTensor::norm_before_mixer).data(), DType::f32, 1, 32);
            EXPECT_EQ(bytes_of(*backend, norm), bytes_of(*backend, same));
        }
        EXPECT_EQ(bytes_of(*backend, filled.embedding().dense()),
                  bytes_of(*backend, read.embedding().dense()));
        EXPECT_EQ(bytes_of(*backend, filled.head().dense()),
                  bytes_of(*backend, read.head().dense()));
    }
}

TEST(FrozenWeights, Fp8LinearsHaveTheCodesOfAnFp8Base) {
    ModelSpec model = small_model();
    model.quantization = {WeightFormat::e4m3, SourceType::bf16};
    SmallCase test_case(model, {small_adapter("a", 5)});
    test_case.plan.fp8_linears = true;
    const auto backend = make_backend("cpu", {1, 0});
    FrozenWeights weights(only_replica(test_case.plan), test_case.plan.replicas[0].stages[0],
                          *test_case.weights, *backend);
    const Fp8Rows& rows = weights.layer(0).groups[1].fp8.codes;  // o
    const auto count = static_cast<std::size_t>(rows.rows * rows.cols);
    std::vector<std::uint8_t> codes(count);
    std::vector<float> scales(static_cast<std::size_t>(rows.rows));
    test_case.weights->read_codes("model.layers.0.self_attn.o_proj.weight", 0, rows.rows,
                                  codes.data(), scales.data());
    EXPECT_TRUE(std::equal(codes.begin(), codes.end(), rows.codes));
    EXPECT_TRUE(std::equal(scales.begin(), scales.end(), rows.scales));
}

/// What GEMMs multiply with, rows and columns of one group.
std::vector<float> widened(Backend& backend, const GroupWeights& weights) {
    const WeightView& view = weights.matrix.view;
    std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
    gemm_matrix(view, {view.rows, view.cols}, values.data(), backend);
    return values;
}

TEST(FrozenWeights, LanesHaveTheirPartsOfQuantisedLinears) {
    ModelSpec model = small_model();
    model.dense().size = 256;
    model.attention().heads = 4;
    model.attention().kv_heads = 2;
    model.attention().head_dim = 32;
    model.hidden_size = 128;
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3}) {
        model.quantization = {format, SourceType::bf16};
        SmallCase test_case(model, {small_adapter("a", 5)}, 1, Precision::fp32);
        const StagePlan& stage = test_case.plan.replicas[0].stages[0];
        const auto backend = make_backend("cpu", {1, 0});
        FrozenWeights whole(only_replica(test_case.plan), stage, *test_case.weights, *backend);
        test_case.plan.replicas[0].tensor = 2;
        const ReplicaView view = only_replica(test_case.plan);
        const std::vector<float> down = widened(*backend, whole.layer(0).groups[3]);
        const std::vector<float> gate_up = widened(*backend, whole.layer(0).groups[2]);
        for (std::int32_t lane = 0; lane < 2; ++lane) {
            FrozenWeights part(view, stage, *test_case.weights, *backend, lane);
            const std::vector<float> columns = widened(*backend, part.layer(0).groups[3]);
            for (std::size_t row = 0; row < 128; ++row) {
                const std::size_t first = row * 256 + static_cast<std::size_t>(lane) * 128;
                EXPECT_TRUE(
                    std::equal(columns.begin() + static_cast<std::ptrdiff_t>(row * 128),
                               columns.begin() + static_cast<std::ptrdiff_t>(row * 128 + 128),
                               down.begin() + static_cast<std::ptrdiff_t>(first)))
                    << traits_of(format).name << " " << row;
            }
            const std::vector<float> rows = widened(*backend, part.layer(0).groups[2]);
            EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 128 * 128,
                                   gate_up.begin() + lane * 128 * 128));
            EXPECT_TRUE(std::equal(rows.begin() + 128 * 128, rows.end(),
                                   gate_up.begin() + (256 + lane * 128) * 128));
        }
    }
}

}  // namespace
}  // namespace loratrain::test
