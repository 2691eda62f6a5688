#include "train/rewards/rollout_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "io/json_text.h"

namespace loratrain::test {
namespace {

GeneratedText text_of(std::vector<std::int32_t> tokens, bool stopped) {
    std::vector<float> logprobs(tokens.size(), -0.5F);
    return {{7, {256, 'a', '='}, {'b', 257}}, std::move(tokens), stopped, std::move(logprobs)};
}

TEST(Advantages, AreThoseOfTheGroup) {
    const std::vector<double> rewards{1, 0, 0, 1, 2, 5, 3, 2};
    const std::vector<double> means = advantages_of(rewards, 4, AdvantageScale::mean);
    const std::vector<double> want{0.5, -0.5, -0.5, 0.5, -1, 2, 0, -1};
    EXPECT_EQ(means, want);
    const std::vector<double> scaled = advantages_of(rewards, 4, AdvantageScale::deviation);
    const double first = std::sqrt(1.0 / 3.0) + 1e-4;
    const double second = std::sqrt(6.0 / 3.0) + 1e-4;
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_DOUBLE_EQ(scaled[i], want[i] / (i < 4 ? first : second));
    }
}

TEST(Advantages, AreZeroForEqualRewards) {
    const std::vector<double> rewards(3, 0.1);  // whose mean is not 0.1 to the bit
    for (const auto scale : {AdvantageScale::mean, AdvantageScale::deviation}) {
        EXPECT_EQ(advantages_of(rewards, 3, scale), std::vector<double>(3, 0.0));
    }
}

TEST(Questions, HaveTextsOrTokens) {
    const GeneratedText text = text_of({'b', 0xC3, 257}, true);  // cut off in a character
    const OrderedJson bytes = parse_ordered_json(question_of(text, true, "rl", 3));
    EXPECT_EQ(bytes.at("prompt").get<std::string>(), "a=");
    EXPECT_EQ(bytes.at("completion").get<std::string>(), "b\xEF\xBF\xBD");
    EXPECT_EQ(bytes.at("reference").get<std::string>(), "b");
    EXPECT_EQ(bytes.at("adapter").get<std::string>(), "rl");
    EXPECT_EQ(bytes.at("step").get<int>(), 3);
    EXPECT_EQ(bytes.at("sample").get<int>(), 7);
    EXPECT_TRUE(bytes.at("stopped").get<bool>());
    const OrderedJson tokens = parse_ordered_json(question_of(text, false, "rl", 3));
    EXPECT_EQ(tokens.at("prompt").get<std::vector<int>>(), (std::vector<int>{256, 'a', '='}));
    EXPECT_EQ(tokens.at("completion").get<std::vector<int>>(), (std::vector<int>{'b', 0xC3, 257}));
}

TEST(RolloutFile, HasWhatIsTrainedAndItsMeans) {
    RewardsJob rewards;
    rewards.group_size = 2;
    rewards.advantages = AdvantageScale::mean;
    const std::vector<Rollout> rollouts{{text_of({'b', 257}, true), 1.0, {{"format", 1.0}}},
                                        {text_of({'c'}, false), 0.0, {{"format", 0.5}}},
                                        {text_of({'b', 257}, true), 1.0, {}},
                                        {text_of({'b', 257}, true), 1.0, {}}};
    const std::string lines = to_text(rollouts, rewards, 3);
    const OrderedJson first = parse_ordered_json(lines.substr(0, lines.find('\n')));
    EXPECT_EQ(first.at("input_ids").get<std::vector<int>>(),
              (std::vector<int>{256, 'a', '=', 'b', 257}));
    EXPECT_EQ(first.at("labels").get<std::vector<int>>(),
              (std::vector<int>{-100, -100, -100, 'b', 257}));
    EXPECT_EQ(first.at("advantages").get<std::vector<double>>(),
              (std::vector<double>{0, 0, 0, 0.5, 0.5}));
    EXPECT_EQ(first.at("logprobs").get<std::vector<double>>(),
              (std::vector<double>{0, 0, 0, -0.5, -0.5}));
    EXPECT_EQ(first.at("adapter_step").get<int>(), 3);
    const RolloutMeans means = means_of(lines, 2).value();
    EXPECT_DOUBLE_EQ(means.reward, 0.75);
    EXPECT_DOUBLE_EQ(means.deviation, std::sqrt(0.5) / 2);
    EXPECT_DOUBLE_EQ(means.equal_groups, 0.5);
    EXPECT_DOUBLE_EQ(means.length, 1.75);
    EXPECT_DOUBLE_EQ(means.cut_off, 0.25);
    ASSERT_EQ(means.parts.size(), 1U);
    EXPECT_DOUBLE_EQ(means.parts[0].second, 1.5 / 2) << "of the answers that have it";
    EXPECT_EQ(rollout_path("run/rollouts/rl/", 17), "run/rollouts/rl/step-000017.jsonl");
}

TEST(RolloutFile, OfOthersHasNoMeans) {
    RewardsJob rewards;
    rewards.group_size = 2;
    const std::vector<Rollout> group(2, Rollout{text_of({'b', 257}, true), 1.0, {}});
    const std::string whole = to_text(group, rewards, 3);
    EXPECT_TRUE(means_of(whole, 2).has_value());
    EXPECT_FALSE(means_of(whole, 3).has_value()) << "groups of another size";
    EXPECT_FALSE(means_of(whole.substr(0, whole.size() - 9), 2).has_value()) << "cut off";
    EXPECT_FALSE(means_of("", 2).has_value());
    const std::string line =
        R"({"input_ids":[1,2],"labels":[-100,2],"advantages":[0,1],"logprobs":[0,-1]})"
        "\n";
    EXPECT_FALSE(means_of(line + line, 2).has_value()) << "no rewards";
}

}  // namespace
}  // namespace loratrain::test
