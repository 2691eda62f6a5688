#include "data/kl_groups.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain::test {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Example e: e + 1 tokens 10 e of prompt, two tokens 10 e + 1 of completion.
TokenSample labelled(std::int64_t e) {
    const auto base = static_cast<std::int32_t>(10 * e);
    TokenSample sample{Tokens(static_cast<std::size_t>(e) + 1, base), {}};
    sample.label = e % 2 == 0;
    sample.labels.assign(sample.input_ids.size(), no_target);
    for (int i = 0; i < 2; ++i) {
        sample.input_ids.push_back(base + 1);
        sample.labels.push_back(base + 1);
    }
    return sample;
}

KlGroups groups(std::int64_t examples, std::int64_t k, std::int64_t most) {
    std::vector<Example> all;
    for (std::int64_t e = 0; e < examples; ++e) all.push_back(example_of("", labelled(e)));
    return {all, k, most};
}

TEST(KlGroups, KlSamplesHaveTheCompletionBefore) {
    const KlGroups of = groups(6, 3, 100);
    const std::vector<SampleInfo> infos = of.infos();
    ASSERT_EQ(infos.size(), 12U);
    EXPECT_EQ(of.sample(2, labelled).input_ids, (Tokens{20, 20, 20, 21, 21}));
    EXPECT_EQ(of.sample(3, labelled).input_ids, (Tokens{0, 21, 21}));
    EXPECT_EQ(of.sample(3, labelled).labels, (Tokens{no_target, 21, 21}));
    EXPECT_EQ(of.sample(4, labelled).input_ids, (Tokens{10, 10, 1, 1}));
    EXPECT_EQ(of.sample(9, labelled).input_ids, (Tokens{30, 30, 30, 30, 51, 51}));
    for (std::int64_t place = 0; place < 12; ++place) {
        const TokenSample sample = of.sample(place, labelled);
        const SampleInfo& info = infos[static_cast<std::size_t>(place)];
        EXPECT_EQ(info.tokens, std::ssize(sample.input_ids));
        EXPECT_EQ(info.targets, 2);
        EXPECT_EQ(info.undesirable, (place / 6 * 3 + place % 3) % 2 == 1);
    }
}

TEST(KlGroups, LongSamplesAreCut) {
    const KlGroups of = groups(4, 4, 4);
    const std::vector<SampleInfo> infos = of.infos();
    EXPECT_EQ(of.sample(3, labelled).input_ids, (Tokens{30, 30, 30, 30}));
    EXPECT_EQ(infos[3].targets, 0);
    EXPECT_EQ(infos[2].targets, 1);
    EXPECT_EQ(of.sample(6, labelled).labels, (Tokens{no_target, no_target, no_target, 11}));
}

TEST(KlGroups, CompletionsGoToTheEnd) {
    TokenSample sample = labelled(1);
    EXPECT_EQ(example_of("", sample).prompt, 2);
    sample.labels.back() = no_target;
    EXPECT_THROW(example_of("data.jsonl:3", sample), InputError);
    EXPECT_EQ(example_of("", {{7, 8}, {7, 8}}).prompt, 0);
}

}  // namespace
}  // namespace loratrain::test
