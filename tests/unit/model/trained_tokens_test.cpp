#include <algorithm>

#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

AdapterJob with_tokens(AdapterJob adapter, std::vector<std::int32_t> tokens) {
    adapter.trainable_token_indices = std::move(tokens);
    adapter.form = form_of(adapter);
    return adapter;
}

/// One that the rows of small stages lack, then three that they have from a row on.
std::vector<std::int32_t> tokens_of(const WholeStage& stage, std::ptrdiff_t row) {
    const std::vector<std::int32_t>& ids = stage.packed.token_ids;
    std::int32_t unseen = 0;
    while (std::find(ids.begin(), ids.end(), unseen) != ids.end()) ++unseen;
    std::vector<std::int32_t> tokens{unseen};
    for (auto id = ids.begin() + row; tokens.size() < 4; ++id) {
        if (std::find(tokens.begin(), tokens.end(), *id) == tokens.end()) tokens.push_back(*id);
    }
    return tokens;
}

/// Two with tokens of their own samples, and one without between them.
std::vector<AdapterJob> adapters_with_tokens() {
    std::vector<AdapterJob> adapters{small_adapter("a", 4), small_adapter("plain", 3, 0.2),
                                     small_adapter("c", 3)};
    const WholeStage plain(SmallCase(small_model(), adapters));
    for (const std::size_t a : {0U, 2U}) {
        adapters[a] = with_tokens(adapters[a], tokens_of(plain, 12 * static_cast<int>(a)));
    }
    return adapters;
}

/// Their values are compared with PEFT's in golden_test.cpp.
TEST(TrainedTokens, HaveGradientsWhereTheyAreUsed) {
    for (const bool tied : {false, true}) {
        ModelSpec model = small_model();
        model.tie_word_embeddings = tied;
        WholeStage whole(SmallCase(model, adapters_with_tokens()));
        whole.forward(0);
        whole.backward();
        for (const std::size_t adapter : {0U, 2U}) {
            const NamedTensor rows = whole.gradients(adapter)[0];
            EXPECT_EQ(rows.name,
                      "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta");
            EXPECT_EQ(rows.shape, (std::vector<std::int64_t>{4, model.hidden_size}));
            for (std::int64_t i = 0; i < 4; ++i) {
                const auto first = rows.values.begin() + i * model.hidden_size;
                const std::vector<float> row(first, first + model.hidden_size);
                // A token that comes nowhere: its logit has a gradient, its embedding none.
                EXPECT_EQ(norm(row) > 0.0, tied || i > 0) << adapter << " " << i;
            }
        }
    }
}

TEST(TrainedTokens, OthersDoNotNotice) {
    for (const bool tied : {false, true}) {
        ModelSpec model = small_model();
        model.tie_word_embeddings = tied;
        WholeStage with(SmallCase(model, adapters_with_tokens()));
        std::vector<AdapterJob> adapters = adapters_with_tokens();
        for (AdapterJob& adapter : adapters) adapter = with_tokens(adapter, {});
        WholeStage without(SmallCase(model, adapters));
        EXPECT_EQ(with.forward(1), without.forward(1));
        EXPECT_NE(with.forward(0), without.forward(0));
        with.backward();
        without.backward();
        EXPECT_EQ(flat(with.gradients(1)), flat(without.gradients(1)));
    }
}

/// So nothing changes at first.
TEST(TrainedTokens, StartAsTheBasesRows) {
    const SmallCase test_case(small_model(), adapters_with_tokens());
    const auto backend = make_backend("cpu", {1, 0});
    const auto stage = test_case.stage(*backend);
    const std::int64_t hidden = test_case.plan.model.hidden_size;
    const auto tensors = stage->bank().download(AdapterId{0}, AdapterBank::Part::parameters);
    std::vector<float> rows;
    for (const std::int32_t token : test_case.job.adapters[0].trainable_token_indices) {
        std::vector<float> row(static_cast<std::size_t>(hidden));
        test_case.weights->read_rows("model.embed_tokens.weight", token,
                                     matrix(row.data(), DType::f32, 1, hidden));
        rows.insert(rows.end(), row.begin(), row.end());
    }
    EXPECT_EQ(tensors[0].values, rows);
    EXPECT_GT(norm(rows), 0.0);
}

TEST(TrainedTokens, TakeTheMemoryThatIsPlanned) {
    const SmallCase test_case(small_model(), adapters_with_tokens());
    WholeStage whole(test_case);
    const std::size_t with = whole.backend->memory().current;
    whole.stage->bank().suspend(AdapterId{0});
    const StagePlan& stage = test_case.plan.replicas[0].stages[0];
    EXPECT_EQ(with - whole.backend->memory().current,
              adapter_bytes_on(stage, AdapterId{0}, test_case.job, test_case.plan.model));
    EXPECT_GT(adapter_bytes_on(stage, AdapterId{0}, test_case.job, test_case.plan.model),
              adapter_bytes(small_adapter("a", 4), test_case.plan.model, stage.layer_count, {}));
}

}  // namespace
}  // namespace loratrain::test
