#include "io/run_files/run_account.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

RunAccount account_of_two_ranks() {
    RunAccount account;
    account.ranks = 2;
    account.wall_seconds = 10.0;
    account.training_seconds = 8.0;
    account.phases[static_cast<std::size_t>(RunPhase::start)] = {1.5, 2.0, 2.5};
    account.phases[static_cast<std::size_t>(RunPhase::forward)] = {2.0, 3.0, 4.0};
    account.phases[static_cast<std::size_t>(RunPhase::waiting)] = {0.0, 5.0, 10.0};
    account.forward = {1.0, 1.5, 0.5};
    account.tokens = 4000.0;
    account.useful_flop = 3.2e9;
    account.device = "NVIDIA L4";
    account.peak_flop_rate = 121e12;
    account.sensors = 2;
    account.joules = 500.0;
    return account;
}

TEST(RunAccount, RatesAndShares) {
    const RunAccount account = account_of_two_ranks();
    EXPECT_EQ(account.share(RunPhase::forward), 0.3);
    EXPECT_EQ(account.tokens_per_second(), 400.0);
    EXPECT_EQ(account.training_tokens_per_second(), 500.0);
    EXPECT_EQ(account.flop_rate(), 2e8) << "of one rank";
    EXPECT_EQ(RunAccount().tokens_per_second(), 0.0);
    EXPECT_EQ(RunAccount().flop_rate(), 0.0);
}

TEST(RunAccount, TextReadsBackTheSame) {
    const OrderedJson json = to_json(account_of_two_ranks());
    EXPECT_EQ(json["phases"]["forward"]["share"], 0.3);
    EXPECT_EQ(json["phases"]["forward"]["min_seconds"], 2.0);
    const auto read = run_account_from_json(json);
    ASSERT_TRUE(read);
    EXPECT_EQ(dump_json(to_json(*read)), dump_json(json));
}

TEST(RunAccount, WhatIsNotMeasuredIsNull) {
    RunAccount account = account_of_two_ranks();
    account.sensors = 0;
    account.joules = 0.0;
    account.peak_flop_rate = 0.0;
    const OrderedJson json = to_json(account);
    EXPECT_TRUE(json["joules"].is_null());
    EXPECT_TRUE(json["peak_flop_rate"].is_null());
    EXPECT_TRUE(run_account_from_json(json));
}

TEST(RunAccount, OtherTextsAreNone) {
    OrderedJson json = to_json(account_of_two_ranks());
    json["wall_seconds"] = -1.0;
    EXPECT_FALSE(run_account_from_json(json));
    json["wall_seconds"] = "ten";
    EXPECT_FALSE(run_account_from_json(json));
    EXPECT_FALSE(run_account_from_json({}));
    EXPECT_TRUE(accounts_in({}).empty());
    EXPECT_TRUE(accounts_in({{"starts", 3}}).empty());
}

TEST(RunAccount, StartsAddUp) {
    OrderedJson provenance;
    RunAccount other = account_of_two_ranks();
    other.sensors = 0;
    provenance["starts"] = OrderedJson::array({{{"account", to_json(account_of_two_ranks())}},
                                               {{"reason", "killed"}},
                                               {{"account", to_json(other)}}});
    const std::vector<RunAccount> starts = accounts_in(provenance);
    ASSERT_EQ(starts.size(), 2U) << "a start that was killed left none";
    const RunAccount sum = sum_of(starts);
    EXPECT_EQ(sum.wall_seconds, 20.0);
    EXPECT_EQ(sum.of(RunPhase::forward).mean, 6.0);
    EXPECT_EQ(sum.of(RunPhase::forward).most, 0.0) << "their ranks may not be the same";
    EXPECT_EQ(sum.share(RunPhase::forward), 0.3);
    EXPECT_EQ(sum.tokens, 8000.0);
    EXPECT_EQ(sum.sensors, 0) << "one start was not measured";
    EXPECT_EQ(sum.joules, 0.0);
}

TEST(KindSeconds, KeepTheirShares) {
    const KindSeconds kinds = KindSeconds{1.0, 2.0, 1.0}.scaled_to(8.0);
    EXPECT_EQ(kinds.linears, 4.0);
    EXPECT_EQ(kinds.sum(), 8.0);
    EXPECT_EQ(KindSeconds().scaled_to(8.0).sum(), 0.0) << "nothing is known";
}

}  // namespace
}  // namespace loratrain
