#include <algorithm>
#include <array>

#include "unit/model/outlier_weights.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// On a CPU, which no job may ask for.
SmallCase fp8_case(const ModelSpec& model, const std::vector<AdapterJob>& adapters) {
    SmallCase test_case(model, adapters);
    test_case.plan.fp8_linears = true;
    return test_case;
}

std::vector<AdapterJob> some_adapters(double dropout = 0.0) {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 7, dropout),
                                     small_adapter("c", 3)};
    adapters[2].targets = {true, false, true, false, true, false, true};
    return adapters;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum / (norm(a) * norm(b));
}

void shrink_readers(WholeStage& whole) {
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        std::vector<NamedTensor> tensors = whole.parameters(a);
        divide_outlier_columns(tensors, whole.plan.model.hidden_size);
        whole.upload(a, tensors);
    }
}

/// Losses and gradients of fp8 linears are close to those of dense ones, as far as a few targets of
/// a narrow model with random weights let them be.
void expect_close_to_dense(const SmallCase& fp8, const SmallCase& dense, bool outliers = false) {
    WholeStage coded(fp8);
    WholeStage exact(dense);
    if (outliers) {
        shrink_readers(coded);
        shrink_readers(exact);
    }
    for (std::size_t a = 0; a < fp8.job.adapters.size(); ++a) {
        const double loss = exact.forward(a);
        EXPECT_NEAR(coded.forward(a), loss, 2e-2 * loss);
        EXPECT_NE(coded.forward(a), loss);
    }
    exact.backward();
    coded.backward();
    for (std::size_t a = 0; a < fp8.job.adapters.size(); ++a) {
        const std::vector<NamedTensor> got = coded.gradients(a);
        const std::vector<NamedTensor> expected = exact.gradients(a);
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_GE(cosine(flat(got), flat(expected)), 0.985);
        EXPECT_NEAR(norm(flat(got)) / norm(flat(expected)), 1.0, 0.05);
        for (std::size_t t = 0; t < got.size(); ++t) {
            if (norm(expected[t].values) == 0.0) {  // of an expert without rows
                EXPECT_EQ(norm(got[t].values), 0.0) << got[t].name;
                continue;
            }
            EXPECT_GE(cosine(got[t].values, expected[t].values), 0.97) << got[t].name;
            EXPECT_NEAR(norm(got[t].values) / norm(expected[t].values), 1.0, 0.15) << got[t].name;
        }
    }
}

ModelSpec wide_model() {
    ModelSpec model = small_model(2);
    model.hidden_size = 128;
    model.dense().size = 192;
    model.attention().head_dim = 32;
    return model;
}

TEST(Fp8Linears, AreCloseToDenseOnes) {
    ModelSpec qwen = wide_model();
    qwen.attention().qk_norm = true;
    qwen.attention().head_dim = 16;
    ModelSpec biased = wide_model();
    biased.attention().qkv_bias = biased.attention().o_bias = biased.dense().bias = true;
    for (const ModelSpec& model : {wide_model(), qwen, biased}) {
        for (const double dropout : {0.0, 0.3}) {
            expect_close_to_dense(fp8_case(model, some_adapters(dropout)),
                                  SmallCase(model, some_adapters(dropout)));
        }
    }
}

/// Layers with experts, one of them shared, around one without.
ModelSpec mixed_model() {
    ModelSpec model = wide_model();
    ExpertSpec experts{5, 2, 192, true};
    experts.shared_size = 64;
    experts.shared_gate = true;
    std::vector<LayerSpec> layers(3, model.layer(0));
    for (const std::size_t l : {0, 2}) layers[l].mlp = experts;
    model.layers = 3;
    model.set_layers(layers);
    return model;
}

/// On attention and experts, on attention, on down alone.
std::vector<AdapterJob> adapters_of_mixture() {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 7),
                                     small_adapter("c", 3)};
    adapters[1].targets = {true, true, true, true, false, false, false};
    adapters[2].targets = {false, false, false, false, false, false, true};
    return adapters;
}

TEST(Fp8Experts, AreCloseToDenseOnes) {
    expect_close_to_dense(fp8_case(mixed_model(), adapters_of_mixture()),
                          SmallCase(mixed_model(), adapters_of_mixture()));
}

TEST(Fp8Experts, RecomputationGivesTheSameBits) {
    SmallCase test_case = fp8_case(mixed_model(), adapters_of_mixture());
    WholeStage kept(test_case);
    test_case.plan.replicas[0].recompute = Recompute::layer;
    WholeStage recomputed(test_case);
    for (WholeStage* whole : {&kept, &recomputed}) {
        whole->forward(0);
        whole->backward();
    }
    for (const std::size_t a : {0U, 1U, 2U}) {
        EXPECT_EQ(flat(recomputed.gradients(a)), flat(kept.gradients(a)));
    }
}

/// Beside the same codes widened to compute type.
TEST(Fp8Experts, TakeCodesAsTheirFileHasThem) {
    ModelSpec model = mixed_model();
    model.quantization = {WeightFormat::e4m3, SourceType::bf16};
    expect_close_to_dense(fp8_case(model, adapters_of_mixture()),
                          SmallCase(model, adapters_of_mixture()));
}

/// Recomputation changes nothing that codes are made of; LoRA's products in another order change
/// last bits, which now and then make a code its neighbour (some 4e-4 of a gradient).
TEST(Fp8Linears, BySegmentAndWithRecomputation) {
    for (const double dropout : {0.0, 0.3}) {
        SmallCase test_case = fp8_case(wide_model(), some_adapters(dropout));
        WholeStage augmented(test_case);
        test_case.plan.replicas[0].recompute = Recompute::layer;
        WholeStage recomputed(test_case);
        test_case.plan.replicas[0].pad_columns = 0;
        WholeStage by_segment(test_case);
        for (WholeStage* whole : {&augmented, &recomputed, &by_segment}) {
            whole->forward(0);
            whole->backward();
        }
        for (const std::size_t a : {0U, 1U, 2U}) {
            const std::vector<float> expected = flat(augmented.gradients(a));
            EXPECT_EQ(flat(recomputed.gradients(a)), expected);
            EXPECT_LE(distance(flat(by_segment.gradients(a)), expected), 2e-3);
        }
    }
}

TEST(Fp8Linears, CodesInOneOrderGiveTheSameBits) {
    for (const double dropout : {0.0, 0.3}) {
        SmallCase test_case = fp8_case(wide_model(), some_adapters(dropout));
        WholeStage both(test_case);
        test_case.plan.fp8_one_order = true;
        WholeStage one(test_case);
        for (WholeStage* whole : {&both, &one}) {
            whole->forward(0);
            whole->backward();
        }
        for (const std::size_t a : {0U, 1U, 2U}) {
            EXPECT_EQ(flat(one.gradients(a)), flat(both.gradients(a)));
        }
    }
}

TEST(Fp8Linears, TakeOutliers) {
    const SmallCase plain(wide_model(), some_adapters());
    SmallCase dense = plain;
    dense.weights = std::make_shared<OutlierWeights>(*plain.weights);
    SmallCase fp8 = fp8_case(wide_model(), some_adapters());
    fp8.weights = dense.weights;
    expect_close_to_dense(fp8, dense, true);
}

/// Gradients of an adapter, its sample alone in the microbatch or with those of others.
std::vector<float> gradients_of(const SmallCase& test_case, std::size_t adapter,
                                const std::vector<std::size_t>& beside) {
    WholeStage whole(test_case);
    std::vector<Segment> segments;
    for (const std::size_t a : beside) segments.push_back(whole.microbatch.segments[a]);
    whole.microbatch.segments = segments;
    whole.pack();
    std::size_t row = 0;
    for (const std::size_t a : beside) {
        for (std::size_t i = 0; i < 12; ++i, ++row) {
            whole.packed.token_ids[row] = static_cast<std::int32_t>(uniform_int(a, i, 61));
            if (i < 11) {
                whole.packed.targets[row] = static_cast<std::int32_t>(uniform_int(10 + a, i, 61));
            }
        }
    }
    whole.forward_in_slot(0);
    whole.backward();
    return flat(whole.gradients(adapter));
}

TEST(Fp8Linears, AnAdapterAloneHasTheSameGradients) {
    const SmallCase fp8 = fp8_case(wide_model(), some_adapters());
    const std::vector<float> alone = gradients_of(fp8, 1, {1});
    for (const std::vector<std::size_t>& beside :
         {std::vector<std::size_t>{0, 1}, {1, 2}, {0, 1, 2}}) {
        EXPECT_LE(distance(gradients_of(fp8, 1, beside), alone), 2e-6);
    }
}

}  // namespace
}  // namespace loratrain::test
