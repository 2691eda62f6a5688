#include <cstddef>
#include <map>

#include "io/adapters/exported_adapter.h"
#include "io/tensor_names.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// Values of a tensor of `form` by the name that it has in files.
std::map<std::string, std::vector<float>> by_name(const std::vector<NamedTensor>& tensors) {
    std::map<std::string, std::vector<float>> values;
    for (const NamedTensor& tensor : tensors) values.emplace(tensor.name, tensor.values);
    return values;
}

/// The factors of LoRA that a VeRA adapter stands for, from its tensors and projections alone.
std::vector<NamedTensor> factors_of(const AdapterJob& vera, const ModelSpec& model,
                                    const std::vector<NamedTensor>& tensors,
                                    std::vector<NamedTensor> factors) {
    const std::vector<NamedTensor> projections = vera_projections(vera, model);
    const auto scales = by_name(tensors);
    for (NamedTensor& factor : factors) {
        const bool is_a = factor.name.ends_with(".lora_A.weight");
        const std::string module = factor.name.substr(0, factor.name.rfind(".lora_"));
        const std::vector<float>& d = scales.at(module + ".vera_lambda_d");
        const std::vector<float>& b = scales.at(module + ".vera_lambda_b");
        const NamedTensor& from = projections[is_a ? 0 : 1];
        const auto width = static_cast<std::size_t>(from.shape[1]);
        const auto columns = static_cast<std::size_t>(factor.shape[1]);
        for (std::size_t i = 0; i < factor.values.size(); ++i) {
            const float value = from.values[i / columns * width + i % columns];
            factor.values[i] = is_a ? value : b[i / columns] * value * d[i % columns];
        }
    }
    return factors;
}

TEST(Vera, IsLoraWithScaledProjections) {
    for (const double dropout : {0.0, 0.3}) {
        const AdapterJob vera = small_vera("a", 5, dropout);
        AdapterJob lora = small_adapter("a", 5, dropout);
        lora.lora_alpha = 5.0;
        const AdapterJob other = small_adapter("other", 3);
        WholeStage scaled(SmallCase(small_model(), {vera, other}));
        WholeStage plain(SmallCase(small_model(), {lora, other}));
        plain.upload(
            0, factors_of(vera, scaled.plan.model, scaled.parameters(0), plain.parameters(0)));
        EXPECT_NEAR(scaled.forward(0), plain.forward(0), 1e-6);
        EXPECT_EQ(scaled.forward(1), plain.forward(1));
    }
}

TEST(Vera, GradientsAreSlopes) {
    SmallCase test_case(small_model(),
                        {small_vera("a", 4, 0.3), small_adapter("plain", 3), small_vera("c", 9)});
    test_case.job.adapters[2].targets = {true, false, true, true, true, false, true};
    WholeStage whole(test_case);
    whole.forward(0);
    whole.backward();
    for (const std::size_t a : {0U, 2U}) {
        EXPECT_EQ(whole.parameters(a).size(), whole.gradients(a).size());
        expect_slopes(whole, a, 1e-6);
    }
}

TEST(Vera, SegmentedPathEqualsAugmentedMatrix) {
    expect_segmented_as_augmented(
        {small_model(), {small_vera("a", 5), small_adapter("b", 3, 0.3), small_vera("c", 7, 0.3)}});
}

/// scale_b is 0 at first; others in the microbatch do not notice.
TEST(Vera, BeginsAsTheBase) {
    const auto begun = [](const std::vector<AdapterJob>& adapters) {
        WholeStage stage(SmallCase(small_model(), adapters));
        for (std::size_t a = 0; a < adapters.size(); ++a) {
            stage.stage->bank().release(static_cast<AdapterId>(a), Residence::absent);
            stage.stage->bank().reside(static_cast<AdapterId>(a));
        }
        return std::pair(stage.forward(0), stage.forward(1));
    };
    const auto [plain, base] = begun({small_adapter("a", 4), small_adapter("b", 4)});
    const auto [beside, vera] = begun({small_adapter("a", 4), small_vera("b", 4)});
    EXPECT_EQ(beside, plain);
    EXPECT_EQ(vera, base);
}

/// Also where another adapter's, or another layer's, was made before.
TEST(Vera, FactorsFollowTheScales) {
    WholeStage whole(SmallCase(small_model(), {small_vera("a", 4), small_vera("b", 4)}));
    const double first = whole.forward(0);
    const auto original = whole.parameters(0);
    auto doubled = original;
    for (NamedTensor& tensor : doubled) {
        for (float& value : tensor.values) value *= 2.0F;
    }
    whole.upload(0, doubled);
    EXPECT_GT(std::abs(whole.forward(0) - first), 1e-5);
    whole.upload(0, original);
    EXPECT_EQ(whole.forward(0), first);
    whole.stage->bank().suspend(AdapterId{0});
    whole.stage->bank().reside(AdapterId{0});
    EXPECT_EQ(whole.forward(0), first);
}

TEST(Vera, TakesTheMemoryThatIsPlanned) {
    SmallCase test_case(small_model(), {small_vera("a", 6)});
    test_case.job.adapters[0].targets = {true, false, true, false, true, true, false};
    expect_adapter_bytes_as_planned(test_case);
}

}  // namespace
}  // namespace loratrain::test
