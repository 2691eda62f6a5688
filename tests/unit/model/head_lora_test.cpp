#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

AdapterJob with_head(const std::string& name, int r) {
    AdapterJob adapter = small_adapter(name, r);
    adapter.targets_head = true;
    return adapter;
}

/// The head's gradients are made by forward().
TEST(HeadLora, GradientsAreSlopes) {
    for (const bool tied : {false, true}) {
        ModelSpec model = small_model();
        model.tie_word_embeddings = tied;
        std::vector<AdapterJob> adapters{with_head("a", 4), small_adapter("plain", 3, 0.2),
                                         with_head("alone", 6)};
        adapters[2].targets.fill(false);
        WholeStage whole(SmallCase(model, adapters));
        whole.forward(0);
        whole.backward();
        expect_slopes(whole, 0);
        WholeStage again(SmallCase(model, adapters));
        again.forward(0);
        again.backward();
        expect_slopes(again, 2);
        EXPECT_EQ(whole.gradients(2).size(), 2U);
        EXPECT_EQ(whole.gradients(2)[0].name, "base_model.model.lm_head.lora_A.weight");
    }
}

TEST(HeadLora, OthersDoNotNotice) {
    expect_others_unchanged(with_head("a", 4));
}

TEST(HeadLora, TakesTheMemoryThatIsPlanned) {
    const SmallCase test_case(small_model(), {with_head("a", 4)});
    expect_adapter_bytes_as_planned(test_case);
}

}  // namespace
}  // namespace loratrain::test
