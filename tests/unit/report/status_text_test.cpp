#include "report/status_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "report/html.h"

namespace loratrain {
namespace {

bool there(std::int64_t) {
    return true;
}
bool gone(std::int64_t) {
    return false;
}

RunStatus running() {
    RunStatus status;
    status.state = "running";
    status.round = 5;
    status.rounds = 20;
    status.host = "node01";
    status.pid = 812;
    status.ranks = 4;
    status.updated = 1000.0;
    status.tokens_per_second = 1234.4;
    status.seconds_left = 3700.0;
    status.adapters = {{"math", "RUNNING", 5, 20, 1.5, 2.5, 0.25},
                       {"new", "RUNNING", 0, 20, {}, {}, {}}};
    return status;
}

TEST(Pulse, YoungOldAndGone) {
    const RunStatus status = running();
    EXPECT_EQ(pulse_of(status, 1059.0, "login", gone).life, Life::alive);
    EXPECT_EQ(pulse_of(status, 1061.0, "login", gone).life, Life::silent);
    EXPECT_EQ(pulse_of(status, 1061.0, "node01", there).life, Life::silent);
    EXPECT_EQ(pulse_of(status, 1001.0, "node01", gone).life, Life::vanished);
    EXPECT_EQ(pulse_of(status, 990.0, "login", there).age, 0.0);
}

TEST(Pulse, LongRoundsMayBeSilentLonger) {
    RunStatus status = running();
    status.seconds_per_round = 100.0;
    EXPECT_EQ(pulse_of(status, 1499.0, "login", there).life, Life::alive);
    EXPECT_EQ(pulse_of(status, 1501.0, "login", there).life, Life::silent);
}

TEST(Pulse, AnEndedRunIsNotJudged) {
    RunStatus status = running();
    status.state = "stopped";
    EXPECT_EQ(pulse_of(status, 1e9, "node01", gone).life, Life::ended);
}

TEST(ShownStatus, NobodyRunsInARunThatHasEnded) {
    for (const Life life : {Life::ended, Life::vanished}) {
        EXPECT_EQ(shown_status("RUNNING", {life, 0.0}), "INTERRUPTED");
        EXPECT_EQ(shown_status("DONE", {life, 0.0}), "DONE");
    }
    for (const Life life : {Life::alive, Life::silent}) {
        EXPECT_EQ(shown_status("RUNNING", {life, 0.0}), "RUNNING");
    }
    RunStatus status = running();
    status.state = "stopped";
    const std::string text = status_text("d", status, {Life::ended, 0.0});
    EXPECT_NE(text.find("math     INTERRUPTED"), std::string::npos) << text;
}

TEST(StatusLines, TheColumnOfAccuracyHasTheNameThatTheRunGaveIt) {
    RunStatus status = running();
    status.accuracy = "reward accuracy";
    const std::string text = status_text("d", status, {Life::alive, 0.0});
    EXPECT_NE(text.find("   eval loss  reward accuracy\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("exact match"), std::string::npos) << text;
}

TEST(Pulse, Words) {
    RunStatus status = running();
    const std::string silent = pulse_text(status, {Life::silent, 723.0});
    EXPECT_NE(silent.find("no heartbeat for 12 min 3 s (process 812 on node01"), std::string::npos)
        << silent;
    EXPECT_NE(pulse_text(status, {Life::vanished, 5.0}).find("interrupted: process "),
              std::string::npos);
    status.state = "failed";
    status.reason = "disk full";
    const std::string failed = pulse_text(status, {Life::ended, 5.0});
    EXPECT_TRUE(failed.starts_with("failed ")) << failed;
    EXPECT_TRUE(failed.ends_with(": disk full")) << failed;
}

TEST(StatusText, TableAndTimeLeft) {
    const std::string text = status_text("runs/a", running(), {Life::alive, 2.0});
    EXPECT_TRUE(text.starts_with("runs/a: running, last heartbeat 2 s ago")) << text;
    EXPECT_NE(text.find("round 5/20"), std::string::npos) << text;
    EXPECT_NE(text.find("1234 tokens/s, about 1 h 1 min left"), std::string::npos) << text;
    EXPECT_NE(text.find("5/20      1.5000      2.5000        25.0%"), std::string::npos) << text;
    EXPECT_NE(text.find("0/20           -           -            -"), std::string::npos) << text;
    const std::string silent = status_text("runs/a", running(), {Life::silent, 200.0});
    EXPECT_EQ(silent.find("left"), std::string::npos) << silent;
}

TEST(StatusText, PrioritiesWhereThereAreAny) {
    RunStatus status = running();
    EXPECT_EQ(status_text("a", status, {}).find("priority"), std::string::npos);
    status.adapters[1].priority = -2;
    status.adapters[1].status = "STOPPED EARLY";
    const std::string text = status_text("a", status, {Life::alive, 0.0});
    EXPECT_NE(text.find("  adapter  status         priority         step"), std::string::npos)
        << text;
    EXPECT_NE(text.find("  math     RUNNING               0         5/20"), std::string::npos)
        << text;
    EXPECT_NE(text.find("  new      STOPPED EARLY        -2         0/20"), std::string::npos)
        << text;
}

RunStatus many() {
    RunStatus status = running();
    status.adapters.clear();
    for (int i = 0; i < 9; ++i) {
        status.adapters.push_back({cat("a", i),
                                   i < 2   ? "DONE"
                                   : i < 5 ? "RUNNING"
                                           : "WAITING",
                                   i,
                                   20,
                                   {},
                                   {},
                                   {}});
    }
    return status;
}

std::vector<std::string> first_words(const std::vector<std::string>& lines, std::size_t from) {
    std::vector<std::string> words;
    for (std::size_t i = from; i < lines.size(); ++i) {
        words.push_back(lines[i].substr(2, lines[i].find(' ', 2) - 2));
    }
    return words;
}

constexpr Pulse just_now{Life::alive, 0.0};

TEST(StatusLines, AllWhereTheyFit) {
    const auto lines = status_lines("runs/a", many(), just_now, 13);
    ASSERT_EQ(lines.size(), 13U);
    EXPECT_EQ(lines[0], "runs/a: running (process 812 on node01)");
    EXPECT_EQ(lines[2], "");
    EXPECT_EQ(first_words(lines, 3), (std::vector<std::string>{"adapter", "a0", "a1", "a2", "a3",
                                                               "a4", "a5", "a6", "a7", "a8"}));
}

TEST(StatusLines, ThoseThatTrainWhereTheyDoNot) {
    const auto lines = status_lines("runs/a", many(), just_now, 9);
    EXPECT_EQ(first_words(lines, 3),
              (std::vector<std::string>{"adapter", "a2", "a3", "a4", "a0", "..."}));
    EXPECT_EQ(lines.back(), "  ... 5 more: 1 DONE, 4 WAITING");
    EXPECT_EQ(status_lines("runs/a", many(), just_now, 12).back(), "  ... 2 more: 2 WAITING");
}

TEST(StatusLines, NeverMoreThanAsked) {
    for (std::size_t most = 0; most < 20; ++most) {
        EXPECT_EQ(status_lines("runs/a", many(), just_now, most).size(),
                  std::min<std::size_t>(most, 13));
    }
}

TEST(StatusLines, ColumnsKeepTheirPlaces) {
    RunStatus status = running();
    const auto before = status_lines("runs/a", status, just_now, 20);
    status.adapters[0].step = 19;
    status.adapters[0].loss = 12.25;
    const auto after = status_lines("runs/a", status, just_now, 20);
    EXPECT_EQ(before[4].size(), after[4].size());
    EXPECT_EQ(before[4].find("2.5000"), after[4].find("2.5000"));
}

TEST(StatusText, IsPlain) {
    EXPECT_EQ(status_text("runs/a", many(), just_now).find_first_of("\r\x1b"), std::string::npos);
}

TEST(ProcessExists, MineDoesAndAnImpossibleOneDoesNot) {
    EXPECT_TRUE(process_exists(::getpid()));
    EXPECT_FALSE(process_exists(0x7ffffff0));
}

TEST(Html, Escape) {
    EXPECT_EQ(html::escape("<a href='x'>&\"\n\t"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\n\t");
    EXPECT_EQ(html::escape(std::string("a\0b\x1b", 4)),
              "a\xef\xbf\xbd"
              "b\xef\xbf\xbd");
    EXPECT_EQ(html::escape("ü"), "ü");
}

TEST(Html, Table) {
    EXPECT_EQ(html::table({html::text_cell("<"), html::number_cell("n")},
                          {{html::text_cell("a&b"), html::number_cell("1")}}),
              "<div class=\"scroll\"><table>\n<thead><tr><th>&lt;</th><th class=\"n\">n</th></tr>\n"
              "</thead>\n<tbody>\n<tr><td>a&amp;b</td><td class=\"n\">1</td></tr>\n"
              "</tbody></table></div>\n");
}

}  // namespace
}  // namespace loratrain
