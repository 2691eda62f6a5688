#include "report/account_text.h"

#include <gtest/gtest.h>

#include "io/run_files/run_account.h"
#include "report/page_parts.h"

namespace loratrain {
namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

RunAccount small_account() {
    RunAccount account;
    account.ranks = 2;
    account.wall_seconds = 10.0;
    account.training_seconds = 8.0;
    account.phases[static_cast<std::size_t>(RunPhase::start)] = {2.0, 2.0, 2.0};
    account.phases[static_cast<std::size_t>(RunPhase::forward)] = {2.0, 3.0, 4.0};
    account.phases[static_cast<std::size_t>(RunPhase::backward)] = {4.0, 5.0, 6.0};
    account.forward = {0.75, 1.5, 0.75};
    account.tokens = 4000.0;
    account.useful_flop = 1.6e13;
    account.device = "cpu";
    return account;
}

TEST(AccountText, HasThePhasesThatTookTime) {
    const RunAccount account = small_account();
    const std::string text = account_text(account, account, 1);
    EXPECT_TRUE(contains(text,
                         "where the time of 2 ranks went\n"
                         "  phase     mean s  min s  max s   share\n"
                         "  start       2.00   2.00   2.00   20.0%\n"
                         "  forward     3.00   2.00   4.00   30.0%\n"
                         "  backward    5.00   4.00   6.00   50.0%\n"
                         "  total      10.00                100.0%\n"))
        << text;
    EXPECT_FALSE(contains(text, "generation"));
    EXPECT_FALSE(contains(text, "all starts"));
}

TEST(AccountText, SaysWhatIsEstimatedAndWhatIsNotMeasured) {
    RunAccount account = small_account();
    std::string text = account_text(account, account, 1);
    EXPECT_TRUE(contains(text,
                         "estimate by the plan's costs  attention  linears, LoRA  head, loss\n"
                         "  forward                           25.0%          50.0%       25.0%\n"))
        << text;
    EXPECT_TRUE(contains(text, "500 tokens/s from the first step on, 400 in all"));
    EXPECT_TRUE(contains(text, "1.000 TFLOP/s per rank, no peak rate is known of 'cpu'"));
    EXPECT_TRUE(contains(text, "energy: not measured"));

    account.device = "NVIDIA L4";
    account.peak_flop_rate = 121e12;
    account.sensors = 1;
    account.joules = 7.2e6;
    text = account_text(account, account, 1);
    EXPECT_TRUE(contains(text, "0.8% of 121 (dense bf16, by the maker of NVIDIA L4)")) << text;
    EXPECT_TRUE(contains(text, "energy: 2.00 kWh by 1 GPU, 1800.000 J/token")) << text;
}

TEST(AccountText, OfSeveralStartsHasTheirSumToo) {
    const RunAccount account = small_account();
    const std::string text = account_text(account, sum_of({account, account}), 2);
    EXPECT_TRUE(contains(text, "all starts s   share\n")) << text;
    EXPECT_TRUE(contains(text, "2.00   2.00   20.0%          4.00   20.0%\n")) << text;
    EXPECT_TRUE(contains(text, "20.00  100.0%\n")) << text;
    EXPECT_TRUE(contains(text, "all 2 starts: 8000 tokens, 400 tokens/s in all")) << text;
}

TEST(AccountPage, IsLeftOutWithoutAnAccount) {
    RunRecord run;
    EXPECT_EQ(report::account(run), "");
    run.provenance_json = R"({"starts": [{"reason": "killed"}]})";
    EXPECT_EQ(report::account(run), "");
}

TEST(AccountPage, HasTheTableAndTellsOfStartsWithoutOne) {
    RunRecord run;
    OrderedJson json;
    json["starts"] = OrderedJson::array({{{"reason", "killed"}}});
    json["starts"].push_back({{"account", to_json(small_account())}});
    json["account"] = to_json(small_account());
    run.provenance_json = dump_json(json);
    const std::string page = report::account(run);
    for (const char* part :
         {"Where the time went", ">backward</td>", ">50.0%</td>", "Seconds of 2 ranks",
          "1 start of 2 ended before the first checkpoint"}) {
        EXPECT_TRUE(contains(page, part)) << part;
    }
    EXPECT_FALSE(contains(report::provenance(run), "mean_seconds"))
        << "it has a section of its own";
}

}  // namespace
}  // namespace loratrain
