#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

AdapterJob with_embedding(const std::string& name, int r, double dropout = 0.0) {
    AdapterJob adapter = small_adapter(name, r, dropout);
    adapter.targets_embedding = true;
    return adapter;
}

std::vector<AdapterJob> with_and_without_embedding() {
    std::vector<AdapterJob> adapters{with_embedding("a", 4), small_adapter("plain", 3, 0.2),
                                     with_embedding("alone", 6)};
    adapters[2].targets.fill(false);
    return adapters;
}

TEST(EmbeddingLora, GradientsAreSlopes) {
    for (const bool tied : {false, true}) {
        ModelSpec model = small_model();
        model.tie_word_embeddings = tied;
        model.embedding_multiplier = 1.5;
        model.residual_multiplier = 0.5;
        for (const std::size_t adapter : {0U, 2U}) {
            WholeStage whole(SmallCase(model, with_and_without_embedding()));
            whole.forward(adapter);
            whole.backward();
            expect_slopes(whole, adapter);
        }
        const WholeStage whole(SmallCase(model, with_and_without_embedding()));
        ASSERT_EQ(whole.gradients(2).size(), 2U);
        const std::string path = "base_model.model.model.embed_tokens.";
        EXPECT_EQ(whole.gradients(2)[0].name, path + "lora_embedding_A");
        EXPECT_EQ(whole.gradients(2)[1].name, path + "lora_embedding_B");
        EXPECT_EQ(whole.gradients(2)[0].shape, (std::vector<std::int64_t>{6, model.vocab_size}));
    }
}

/// PEFT has none on embeddings.
TEST(EmbeddingLora, HasNoDropout) {
    std::vector<AdapterJob> dropping = with_and_without_embedding();
    dropping[2].lora_dropout = 0.5;
    WholeStage with(SmallCase(small_model(), dropping));
    WholeStage without(SmallCase(small_model(), with_and_without_embedding()));
    EXPECT_EQ(with.forward(2), without.forward(2));
}

TEST(EmbeddingLora, OthersDoNotNotice) {
    expect_others_unchanged(with_embedding("a", 4));
}

/// torch: no gradient for the padding token, which samples may have all the same.
TEST(EmbeddingLora, ThePaddingTokenIsNotTrained) {
    ModelSpec model = small_model();
    WholeStage plain(SmallCase(model, with_and_without_embedding()));
    const std::int32_t token = plain.packed.token_ids.back();
    model.pad_token = token;
    WholeStage padded(SmallCase(model, with_and_without_embedding()));
    std::vector<std::vector<float>> gradients;
    for (WholeStage* whole : {&plain, &padded}) {
        whole->forward(2);
        whole->backward();
        gradients.push_back(whole->gradients(2)[0].values);
    }
    const std::int64_t columns = model.vocab_size;
    double of_token = 0.0;
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
        const bool own = static_cast<std::int64_t>(i) % columns == token;
        EXPECT_EQ(gradients[1][i], own ? 0.0F : gradients[0][i]);
        if (own) of_token += std::fabs(gradients[0][i]);
    }
    EXPECT_GT(of_token, 0.0);
}

TEST(EmbeddingLora, SegmentedPathEqualsAugmentedMatrix) {
    expect_segmented_as_augmented({small_model(), with_and_without_embedding()});
}

/// A's start is zeros and B's normal, so nothing changes at first.
TEST(EmbeddingLora, StartsAsInPeft) {
    const SmallCase test_case(small_model(), with_and_without_embedding());
    const auto backend = make_backend("cpu", {1, 0});
    const auto stage = test_case.stage(*backend);
    const auto tensors = stage->bank().download(AdapterId{2}, AdapterBank::Part::parameters);
    EXPECT_EQ(norm(tensors[0].values), 0.0);
    const double count = static_cast<double>(tensors[1].values.size());
    EXPECT_NEAR(norm(tensors[1].values) / std::sqrt(count), 1.0, 0.2);
}

TEST(EmbeddingLora, TakesTheMemoryThatIsPlanned) {
    const SmallCase test_case(small_model(), {with_embedding("a", 4)});
    WholeStage whole(test_case);
    const std::size_t with = whole.backend->memory().current;
    whole.stage->bank().suspend(AdapterId{0});
    EXPECT_EQ(with - whole.backend->memory().current,
              adapter_bytes_on(test_case.plan.replicas[0].stages[0], AdapterId{0}, test_case.job,
                               test_case.plan.model));
}

}  // namespace
}  // namespace loratrain::test
