#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// Every adapter's gradients, one after another.
std::vector<std::vector<float>> all_gradients(const WholeStage& whole) {
    std::vector<std::vector<float>> result;
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        for (const NamedTensor& tensor : whole.gradients(a)) result.push_back(tensor.values);
    }
    return result;
}

/// Three microbatches in two slots: the backward of the first comes after the forward of the
/// second, that of the third right after its own forward.
std::vector<std::vector<float>> train(SmallCase& test_case, Recompute recompute,
                                      std::int32_t kept_layers = 0) {
    test_case.plan.replicas[0].recompute = recompute;
    test_case.plan.replicas[0].stages[0].kept_layers = kept_layers;
    test_case.plan.replicas[0].max_in_flight = 2;
    WholeStage whole(test_case);
    whole.forward_in_slot(0);
    for (Segment& segment : whole.microbatch.segments) ++segment.step;
    whole.forward_in_slot(1);
    whole.stage->backward(0, {}, {});
    whole.stage->backward(1, {}, {});
    for (Segment& segment : whole.microbatch.segments) ++segment.step;
    whole.forward_in_slot(0);
    whole.stage->backward(0, {}, {});
    return all_gradients(whole);
}

void expect_equal_to_the_bit(SmallCase test_case) {
    const auto kept = train(test_case, Recompute::none);
    const auto recomputed = train(test_case, Recompute::layer);
    EXPECT_EQ(kept, recomputed);
    for (std::int32_t layers = 1; layers <= test_case.plan.model.layers; ++layers) {
        EXPECT_EQ(train(test_case, Recompute::layer, layers), kept) << layers << " layers kept";
    }
    for (const auto& gradient : kept) {
        EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
    }
}

std::vector<AdapterJob> mixed_adapters() {
    std::vector<AdapterJob> adapters{small_adapter("half", 4, 0.5), small_adapter("none", 3),
                                     small_adapter("some", 5, 0.2)};
    adapters[1].targets = {true, false, true, false, false, true, false};
    adapters.push_back(small_dora("dora", 2, 0.3));
    adapters.push_back(small_vera("vera", 3, 0.3));
    return adapters;
}

TEST(Recompute, EqualsKeptActivationsToTheBit) {
    expect_equal_to_the_bit({small_model(), mixed_adapters()});
    expect_equal_to_the_bit({small_model(), {small_adapter("a", 5), small_adapter("b", 3)}});
}

TEST(Recompute, QueryAndKeyNormsAndBiases) {
    ModelSpec model = small_model();
    model.attention().qk_norm = true;
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    expect_equal_to_the_bit({model, mixed_adapters()});
}

TEST(Recompute, DeltaNets) {
    const std::vector<AdapterJob> adapters{small_adapter("half", 4, 0.5), small_dora("dora", 2)};
    for (const DeltaLinears linears : {DeltaLinears::by_kind, DeltaLinears::by_key_head}) {
        expect_equal_to_the_bit({with_delta_nets(small_model(), linears), adapters});
    }
}

TEST(Recompute, StagedBf16) {
    expect_equal_to_the_bit({small_model(), mixed_adapters(), 1, Precision::bf16});
}

TEST(Recompute, SegmentedPath) {
    SmallCase test_case(small_model(), mixed_adapters());
    test_case.plan.replicas[0].pad_columns = 0;
    expect_equal_to_the_bit(std::move(test_case));
}

TEST(Recompute, OneLayer) {
    ModelSpec model = small_model();
    model.layers = 1;
    expect_equal_to_the_bit({model, mixed_adapters()});
}

}  // namespace
}  // namespace loratrain::test
