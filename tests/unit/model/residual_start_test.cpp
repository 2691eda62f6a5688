#include <map>

#include "io/tensor_names.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

AdapterJob starting(const std::string& name, int r, Initial initial, double dropout = 0.0) {
    AdapterJob adapter = small_adapter(name, r, dropout);
    adapter.init_lora_weights = initial;
    adapter.form = form_of(adapter);
    return adapter;
}

/// Parameters as they begin instead of random ones.
void begin(WholeStage& stage) {
    AdapterBank& bank = stage.stage->bank();
    for (std::size_t a = 0; a < stage.job.adapters.size(); ++a) {
        bank.release(static_cast<AdapterId>(a), Residence::absent);
        bank.reside(static_cast<AdapterId>(a));
    }
}

double beginning_loss(const std::vector<AdapterJob>& adapters, std::size_t adapter) {
    const SmallCase test_case(small_model(), adapters);
    WholeStage stage(test_case);
    begin(stage);
    return stage.forward(adapter);
}

/// B0 A0 does not drop its input, nor does W; others in the microbatch do not notice.
TEST(ResidualStart, BeginsAsTheBase) {
    const AdapterJob plain = small_adapter("plain", 4, 0.2);
    const double base = beginning_loss({plain, small_adapter("b", 4)}, 1);
    const double beside = beginning_loss({plain, small_adapter("b", 4)}, 0);
    for (const Initial initial : {Initial::pissa, Initial::olora}) {
        const std::vector<AdapterJob> adapters{plain, starting("b", 4, initial)};
        EXPECT_NEAR(beginning_loss(adapters, 1), base, 2e-6);
        EXPECT_EQ(beginning_loss(adapters, 0), beside);
        const double dropping = beginning_loss({plain, starting("b", 4, initial, 0.5)}, 1);
        EXPECT_GT(std::abs(dropping - base), 1e-4) << "A drops, what it started with does not";
    }
}

/// Of what the codes stand for, which is all that there is of a quantised base: the first column of
/// Q R is that of W.
TEST(ResidualStart, StartsFromQuantisedWeights) {
    ModelSpec model = quantizable_model();
    model.quantization = {WeightFormat::nf4, SourceType::bf16};
    const SmallCase test_case(model, {starting("a", 4, Initial::olora)});
    WholeStage stage(test_case);
    begin(stage);
    const LinearShape shape = linear_shape(model, Linear::q);
    std::vector<float> w(static_cast<std::size_t>(shape.out * shape.in));
    test_case.weights->read_rows(weight_name(1, Linear::q), 0,
                                 matrix(w.data(), DType::f32, shape.out, shape.in));
    std::map<std::string, std::vector<float>> tensors;
    for (const NamedTensor& tensor : stage.parameters(0)) tensors[tensor.name] = tensor.values;
    const auto of_q = [&](std::size_t of_form) {
        return tensors.at(peft_tensor_name(1, Linear::q, lora_form().tensors[of_form]));
    };
    const std::vector<float> a = of_q(0);
    const std::vector<float> b = of_q(1);
    ASSERT_EQ(b.size(), static_cast<std::size_t>(4 * shape.out));
    for (std::size_t row = 0; row < b.size() / 4; ++row) {
        double product = 0.0;
        for (std::size_t i = 0; i < 4; ++i) {
            product +=
                static_cast<double>(b[row * 4 + i]) * a[i * static_cast<std::size_t>(shape.in)];
        }
        EXPECT_NEAR(product, w[row * static_cast<std::size_t>(shape.in)], 1e-6);
    }
}

TEST(ResidualStart, GradientsAreSlopes) {
    WholeStage whole(
        SmallCase(small_model(), {starting("a", 4, Initial::pissa, 0.3), small_adapter("plain", 3),
                                  starting("c", 2, Initial::olora)}));
    whole.forward(0);
    whole.backward();
    for (const std::size_t a : {0U, 2U}) {
        EXPECT_EQ(whole.parameters(a).size(), 2 * whole.gradients(a).size());
        expect_slopes(whole, a);
    }
}

TEST(ResidualStart, SegmentedPathEqualsAugmentedMatrix) {
    expect_segmented_as_augmented({small_model(),
                                   {starting("a", 5, Initial::pissa), small_adapter("b", 3, 0.3),
                                    starting("c", 7, Initial::olora, 0.3)}});
}

TEST(ResidualStart, TakesTheMemoryThatIsPlanned) {
    const SmallCase test_case(small_model(), {starting("a", 4, Initial::olora)});
    expect_adapter_bytes_as_planned(test_case);
}

}  // namespace
}  // namespace loratrain::test
