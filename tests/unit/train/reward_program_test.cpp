#include "train/rewards/reward_program.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"

namespace loratrain::test {
namespace {

using Answers = RewardProgram::Answers;

/// Fails where nothing comes for a minute.
Answers wait_for(RewardProgram& program, RewardProgram::Ticket ticket) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
        program.poll();
        if (auto answers = program.take(ticket)) return *std::move(answers);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no answer";
    return {};
}

Answers asked(const std::string& command, const std::vector<std::string>& lines,
              double timeout = 10.0) {
    RewardProgram program(command, "");
    return wait_for(program, program.ask(lines, timeout));
}

void expect_problem(const Answers& answers, const std::string& words) {
    EXPECT_NE(answers.problem.find(words), std::string::npos) << answers.problem;
}

TEST(RewardProgram, AnswersNumbersAndObjects) {
    const Answers numbers = asked("while read -r line; do echo ${#line}; done", {"a", "bcd"});
    EXPECT_EQ(numbers.problem, "");
    ASSERT_EQ(numbers.of_questions.size(), 2U);
    EXPECT_EQ(numbers.of_questions[0].reward, 1.0);
    EXPECT_EQ(numbers.of_questions[1].reward, 3.0);
    const Answers objects = asked(
        R"(while read -r l; do echo '{"reward": -0.5, "format": 1, "note": "x"}'; done)", {"a"});
    EXPECT_EQ(objects.problem, "");
    ASSERT_EQ(objects.of_questions.size(), 1U);
    EXPECT_EQ(objects.of_questions[0].reward, -0.5);
    EXPECT_EQ(objects.of_questions[0].parts, (std::map<std::string, double>{{"format", 1.0}}));
}

TEST(RewardProgram, IsStartedOnceAndInItsFolder) {
    const TempDir dir;
    RewardProgram program("echo started >> starts; while read -r l; do echo 1; done", dir.path());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(wait_for(program, program.ask({"a", "b"}, 10.0)).of_questions.size(), 2U);
    }
    std::ifstream starts(dir.file("starts"));
    std::string line;
    int count = 0;
    while (std::getline(starts, line)) ++count;
    EXPECT_EQ(count, 1);
}

TEST(RewardProgram, TakesMoreThanAPipeHolds) {
    const std::vector<std::string> lines(600, std::string(1000, 'x'));
    const Answers answers = asked("while read -r line; do echo ${#line}; done", lines, 60.0);
    EXPECT_EQ(answers.problem, "");
    ASSERT_EQ(answers.of_questions.size(), lines.size());
    EXPECT_EQ(answers.of_questions.back().reward, 1000.0);
}

TEST(RewardProgram, OneBadLineFailsItsQuestionsAlone) {
    RewardProgram program("while read -r line; do echo $line; done", "");
    const auto bad = program.ask({"1", "no number", "2"}, 10.0);
    const auto good = program.ask({"3"}, 10.0);
    const Answers answers = wait_for(program, bad);
    expect_problem(answers, "answer 2 of 3 is no number, and no object with a reward: no number");
    EXPECT_EQ(wait_for(program, good).of_questions.at(0).reward, 3.0);
    for (const char* line : {"nan", "1e999", "{\"reward\": \"1\"}", "{}", "[1]", "true", ""}) {
        EXPECT_NE(wait_for(program, program.ask({line}, 10.0)).problem, "") << line;
    }
    EXPECT_EQ(wait_for(program, program.ask({"4"}, 10.0)).problem, "");
}

TEST(RewardProgram, AnEndIsSaidWithItsLine) {
    expect_problem(asked("read -r l; echo 1; exit 3", {"first", "second"}),
                   "has ended with exit code 3; open is answer 2 of 2 to second");
    expect_problem(asked("kill -9 $$", {"first"}), "was ended by signal 9");
    expect_problem(asked("no-such-program-anywhere", {"first"}), "has ended with exit code 127");
    RewardProgram program("true", "/no/such/folder");
    expect_problem(wait_for(program, program.ask({"a"}, 10.0)), "has ended with exit code 126");
    expect_problem(wait_for(program, program.ask({"b"}, 10.0)), "to b");
}

TEST(RewardProgram, SilenceEndsIt) {
    const auto begin = std::chrono::steady_clock::now();
    RewardProgram program("read -r l; echo 1; sleep 1000", "");
    const auto first = program.ask({"a"}, 60.0);
    EXPECT_EQ(wait_for(program, first).problem, "");
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));  // nobody waits meanwhile
    const auto second = program.ask({"b"}, 2.0);
    program.poll();
    EXPECT_FALSE(program.take(second));
    expect_problem(wait_for(program, second), "has given no answer for 2.0 s");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

/// Which was busy, with more to write than a pipe holds.
TEST(RewardProgram, ItDoesNotAnswerForTheSilenceOfWhoAsks) {
    RewardProgram program("head -n 1 > /dev/null; echo 1; cat > /dev/null", "");
    const auto ticket = program.ask({std::string(std::size_t{1} << 20U, 'x')}, 3.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(3300));
    EXPECT_EQ(wait_for(program, ticket).problem, "");
}

TEST(RewardProgram, LinesThatNobodyAskedForEndIt) {
    RewardProgram program(R"(while read -r l; do printf '1\n2\n'; done)", "");
    expect_problem(wait_for(program, program.ask({"a"}, 10.0)),
                   "has written a line that nobody has asked for: 2");
    expect_problem(wait_for(program, program.ask({"b"}, 10.0)),
                   "has written a line that nobody has asked for: 2; open is answer 1 of 1 to b");
}

TEST(RewardProgram, ItsWholeGroupIsKilled) {
    const TempDir dir;
    const auto file = dir.file("pid");
    {
        RewardProgram program(
            "trap '' TERM HUP; sleep 1000 & echo $! > pid.part; mv pid.part pid; "
            "while read -r l; do echo 1; done; wait",
            dir.path());
        EXPECT_EQ(wait_for(program, program.ask({"a"}, 10.0)).problem, "");
    }
    pid_t child = 0;
    std::ifstream(file) >> child;
    ASSERT_GT(child, 0);
    const auto is_alive = [&] {
        std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
        std::string number;
        std::string name;
        std::string state;
        return static_cast<bool>(stat >> number >> name >> state) && state != "Z" && state != "X";
    };
    for (int i = 0; i < 1000 && is_alive(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(is_alive());
}

}  // namespace
}  // namespace loratrain::test
