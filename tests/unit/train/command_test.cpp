#include "train/command.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/text/window_text.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using test::has;

/// What is read from what was written.
template <class Kind>
Kind travelled(const Kind& command) {
    const WorkerCommand read = command_from_text(to_text(WorkerCommand{command}));
    return std::get<Kind>(read);
}

std::string failure_of(const std::string& text) {
    try {
        command_from_text(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

JointWindow some_window() {
    Window window;
    window.first_round = 7;
    window.rounds = 2;
    window.drains = true;
    window.batches.push_back({});
    window.batches.back().adapter = AdapterId{3};
    window.microbatches.push_back({{{AdapterId{3}, 4, {{11, 5, 2}}}}});
    window.microbatches.back().columns.first = {0};
    window.peak_in_flight = {1, 2};
    window.actions.resize(2);
    return {{window}, {}};
}

TEST(WorkerCommand, WindowsTravel) {
    const std::string window = to_text(some_window());
    EXPECT_EQ(to_text(travelled(TrainWindow{some_window()}).window), window);
    EXPECT_EQ(to_text(travelled(ReferWindow{some_window()}).window), window);
}

TEST(WorkerCommand, ReferencesTravel) {
    const KnownReferences known =
        travelled(KnownReferences{AdapterId{2}, {0.1 + 0.2, std::nan(""), -1e-300}});
    EXPECT_EQ(known.adapter, AdapterId{2});
    ASSERT_EQ(known.losses.size(), 3U);
    EXPECT_EQ(known.losses[0], 0.1 + 0.2);
    EXPECT_TRUE(std::isnan(known.losses[1]));
    EXPECT_EQ(known.losses[2], -1e-300);
}

TEST(WorkerCommand, AdaptersTravel) {
    EXPECT_EQ(travelled(SendAdapter{AdapterId{7}}).adapter, AdapterId{7});
    EXPECT_EQ(travelled(ReleaseAdapter{AdapterId{0}}).adapter, AdapterId{0});
    EXPECT_EQ(travelled(GenerateTexts{AdapterId{9}}).adapter, AdapterId{9});
    const LoadAdapter load = travelled(LoadAdapter{AdapterId{5}, "runs/a\nb c"});
    EXPECT_EQ(load.adapter, AdapterId{5});
    EXPECT_EQ(load.directory, "runs/a\nb c");
    const std::vector<AdapterId> three{AdapterId{4}, AdapterId{0}, AdapterId{31}};
    EXPECT_EQ(travelled(AdmitAdapters{three}).adapters, three);
    EXPECT_TRUE(travelled(AdmitAdapters{}).adapters.empty());
    EXPECT_EQ(travelled(CopyStates{three}).adapters, three);
    const std::vector<AdapterAtStep> kept{{AdapterId{4}, 20}, {AdapterId{0}, 1200}};
    EXPECT_EQ(travelled(KeepParameters{kept}).adapters, kept);
    EXPECT_THROW(command_from_text("keep 4 20 0\n"), Error);
}

TEST(WorkerCommand, TheRestTravels) {
    for (const bool goes_on : {false, true}) {
        const Finish finish = travelled(Finish{ExitCode::stopped_resume_me, goes_on});
        EXPECT_EQ(finish.code, ExitCode::stopped_resume_me);
        EXPECT_EQ(finish.goes_on, goes_on);
    }
}

TEST(WorkerCommand, CheckedAdditionsTravel) {
    const std::vector<InboxFile> files{{"a name\nof two lines 7.yaml", "adapters: [{name: a}]\n"},
                                       {"empty.yaml", ""},
                                       {"", "finish 0\n"},
                                       {"last.yaml", "\n\nno end"}};
    const CheckAdditions read = travelled(CheckAdditions{files});
    ASSERT_EQ(read.files.size(), files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
        EXPECT_EQ(read.files[i].path, files[i].path);
        EXPECT_EQ(read.files[i].text, files[i].text);
    }
    EXPECT_EQ(travelled(TakeAddition{"plan: {}\ntake 1\n"}).plan, "plan: {}\ntake 1\n");
    EXPECT_NO_THROW(travelled(DropAdditions{}));
    EXPECT_TRUE(has(failure_of("check 1\na"), "a path without its text"));
    EXPECT_TRUE(has(failure_of("check 1 2\nab"), "a file is cut off"));
    EXPECT_TRUE(has(failure_of("check 1 2\nabcd"), "text behind its end"));
    EXPECT_TRUE(has(failure_of("take 1\n"), "no number is expected"));
}

TEST(WorkerCommand, ADamagedTextIsNamed) {
    EXPECT_TRUE(has(failure_of(""), "the command \"\" cannot be read"));
    EXPECT_TRUE(has(failure_of("send 1"), "its first line does not end"));
    EXPECT_TRUE(has(failure_of("sned 1\n"), "\"sned 1\" cannot be read: no such kind"));
    EXPECT_TRUE(has(failure_of("send\n"), "one number"));
    EXPECT_TRUE(has(failure_of("send 1 2\n"), "one number"));
    EXPECT_TRUE(has(failure_of("drop 3\n"), "no number is expected"));
    EXPECT_TRUE(has(failure_of("train 1\n"), "no number is expected"));
    EXPECT_TRUE(has(failure_of("release x\n"), "'x' is no number"));
    EXPECT_TRUE(has(failure_of("admit 1  2\n"), "'' is no number"));
    EXPECT_TRUE(has(failure_of("admit -1\n"), "'-1' is no number"));
    EXPECT_TRUE(has(failure_of("drop\nmore"), "text behind its end"));
    EXPECT_TRUE(has(failure_of("train\nrounds: many\n"), "\"train\" cannot be read"));
}

}  // namespace
}  // namespace loratrain
