#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// A tensor of an adapter where the CPU backend keeps it.
struct Held {
    std::string name;
    float* values;
    const float* gradient;
    std::size_t count;
};

std::vector<Held> tensors_of(const WholeStage& whole, std::size_t adapter) {
    std::vector<Held> tensors;
    for (std::int32_t layer = 0; layer < whole.plan.model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const LoraSlot slot =
                whole.stage->bank().slot(static_cast<AdapterId>(adapter), layer, linear);
            const LinearShape shape = linear_shape(whole.plan.model, linear);
            const auto add = [&](const char* name, const float* values, const float* gradient,
                                 std::int64_t count) {
                if (values == nullptr) return;
                tensors.push_back({cat(module_path(layer, linear), ".", name),
                                   const_cast<float*>(values), gradient,
                                   static_cast<std::size_t>(count)});
            };
            add("A", slot.a, slot.grad_a, slot.rank * shape.in);
            add("B", slot.b, slot.grad_b, slot.rank * shape.out);
            add("m", slot.magnitude, slot.grad_magnitude, shape.out);
        }
    }
    return tensors;
}

/// With the norms of W + scale B A held, as PEFT takes them: values are changed in place, which the
/// bank does not see. The matrices have no pads, which would hold copies.
TEST(Dora, GradientsAreSlopesWhereNormsStay) {
    SmallCase test_case(small_model(), {small_dora("dora", 4), small_adapter("plain", 3, 0.2),
                                        small_dora("dropping", 2, 0.4)});
    test_case.job.adapters[2].targets = {true, false, true, true, true, false, true};
    test_case.plan.replicas[0].pad_columns = 0;
    WholeStage whole(test_case);
    whole.forward(0);
    whole.backward();
    for (std::size_t a = 0; a < 3; ++a) {
        for (const Held& tensor : tensors_of(whole, a)) {
            const std::vector<float> original(tensor.values, tensor.values + tensor.count);
            const std::vector<float> gradient(tensor.gradient, tensor.gradient + tensor.count);
            const double size = norm(gradient);
            ASSERT_GT(size, 1e-5) << tensor.name;
            constexpr double h = 3e-2;
            const auto moved = [&](double by) {
                for (std::size_t i = 0; i < tensor.count; ++i) {
                    tensor.values[i] = static_cast<float>(original[i] + by * gradient[i] / size);
                }
                const double loss = whole.forward(a);
                std::copy(original.begin(), original.end(), tensor.values);
                return loss;
            };
            const double slope = (moved(h) - moved(-h)) / (2 * h);
            EXPECT_NEAR(slope, size, 0.02 * size + 2e-5)
                << whole.job.adapters[a].name << " " << tensor.name;
        }
    }
}

/// Of magnitudes on o_proj and down_proj: from their outputs, or from products made again.
TEST(Dora, GradientsDoNotDependOnWhatIsKept) {
    SmallCase test_case(small_model(), {small_dora("dora", 4), small_adapter("plain", 3, 0.2),
                                        small_dora("dropping", 2, 0.4)});
    ASSERT_TRUE(test_case.plan.dora_outputs);
    const auto trained = [&] {
        WholeStage whole(test_case);
        std::vector<std::vector<float>> seen;
        for (std::size_t a = 0; a < 3; ++a) {
            seen.push_back({static_cast<float>(whole.forward(a))});
        }
        whole.backward();
        for (std::size_t a = 0; a < 3; ++a) seen.push_back(flat(whole.gradients(a)));
        return seen;
    };
    const auto kept = trained();
    test_case.plan.dora_outputs = false;
    const auto made_again = trained();
    for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_GT(norm(kept[i]), 0.0) << i;
        EXPECT_LE(distance(kept[i], made_again[i]), 2e-6) << i;
    }
}

TEST(Dora, SegmentedPathEqualsAugmentedMatrix) {
    expect_segmented_as_augmented(
        {small_model(), {small_dora("a", 5), small_adapter("b", 3, 0.3), small_dora("c", 7, 0.3)}});
}

/// B is 0 and m the norms of W at first, so that nothing changes; others in the microbatch do not
/// notice.
TEST(Dora, BeginsAsTheBase) {
    WholeStage whole(SmallCase(small_model(), {small_adapter("plain", 4), small_dora("dora", 4)}));
    const auto begun = [&](const std::vector<AdapterJob>& adapters) {
        const SmallCase test_case(small_model(), adapters);
        WholeStage stage(test_case);
        for (std::size_t a = 0; a < adapters.size(); ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            stage.stage->bank().release(adapter, Residence::absent);
            stage.stage->bank().reside(adapter);
        }
        return std::pair(stage.forward(0), stage.forward(1));
    };
    const auto [plain, as_plain] = begun({small_adapter("a", 4), small_adapter("b", 4)});
    const auto [beside, dora] = begun({small_adapter("a", 4), small_dora("b", 4)});
    EXPECT_EQ(beside, plain);
    EXPECT_NEAR(dora, as_plain, 1e-6);
}

TEST(Dora, OthersDoNotNotice) {
    for (const double dropout : {0.0, 0.3}) {
        const AdapterJob other = small_adapter("other", 3, 0.1);
        WholeStage beside(SmallCase(small_model(), {small_dora("a", 4, dropout), other}));
        WholeStage without(SmallCase(small_model(), {small_adapter("a", 4, dropout), other}));
        EXPECT_EQ(beside.forward(1), without.forward(1));
        beside.backward();
        without.backward();
        EXPECT_EQ(flat(beside.gradients(1)), flat(without.gradients(1)));
    }
}

TEST(Dora, NormsFollowTheAdapter) {
    WholeStage whole(SmallCase(small_model(), {small_dora("a", 4), small_dora("b", 4)}));
    const double first = whole.forward(0);
    const auto original = whole.parameters(0);
    auto doubled = original;
    for (NamedTensor& tensor : doubled) {
        if (!tensor.name.ends_with("lora_B.weight")) continue;
        for (float& value : tensor.values) value *= 2.0F;
    }
    whole.upload(0, doubled);
    const double second = whole.forward(0);
    EXPECT_GT(std::abs(second - first), 1e-4);
    WholeStage fresh(SmallCase(small_model(), {small_dora("a", 4), small_dora("b", 4)}));
    fresh.upload(0, doubled);
    EXPECT_EQ(fresh.forward(0), second);
    whole.upload(0, original);
    EXPECT_EQ(whole.forward(0), first);
}

}  // namespace
}  // namespace loratrain::test
