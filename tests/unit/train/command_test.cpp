#include "train/command.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/schedule/window_fields.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using test::has;

/// What is read from what was written.
template <class Kind>
Kind travelled(const Kind& command) {
    const WorkerCommand read = command_from_bytes(to_bytes(WorkerCommand{command}));
    return std::get<Kind>(read);
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
    const std::string window = to_wire(some_window());
    EXPECT_EQ(to_wire(travelled(TrainWindow{some_window()}).window), window);
    EXPECT_EQ(to_wire(travelled(ReferWindow{some_window()}).window), window);
}

TEST(WorkerCommand, ReferencesTravel) {
    const KnownReferences known =
        travelled(KnownReferences{AdapterId{2}, {{0.1 + 0.2, std::nan(""), -1e-300}, {1, 3}}});
    EXPECT_EQ(known.adapter, AdapterId{2});
    ASSERT_EQ(known.losses.ends.size(), 2U);
    ASSERT_EQ(known.losses.of(0).size(), 1U);
    EXPECT_EQ(known.losses.of(0)[0], 0.1 + 0.2);
    ASSERT_EQ(known.losses.of(1).size(), 2U);
    EXPECT_TRUE(std::isnan(known.losses.of(1)[0]));
    EXPECT_EQ(known.losses.of(1)[1], -1e-300);
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
}

TEST(WorkerCommand, OrdersOfTextsTravel) {
    const Draw draw{0.7, 0.9, std::uint64_t{1} << 60U, 5, 6, 7};
    const WriteTexts read =
        travelled(WriteTexts{{{AdapterId{2}, {4, {1, 2}, {3}}, 32, {257}, draw}}});
    ASSERT_EQ(read.orders.size(), 1U);
    const TextOrder& order = read.orders.front();
    EXPECT_EQ(order.adapter, AdapterId{2});
    EXPECT_EQ(order.prompt.sample, 4);
    EXPECT_EQ(order.prompt.tokens, (std::vector<std::int32_t>{1, 2}));
    EXPECT_EQ(order.prompt.reference, (std::vector<std::int32_t>{3}));
    EXPECT_EQ(order.max_new_tokens, 32);
    EXPECT_EQ(order.stop_tokens, (std::vector<std::int32_t>{257}));
    EXPECT_EQ(order.draw.temperature, draw.temperature);
    EXPECT_EQ(order.draw.top_p, draw.top_p);
    EXPECT_EQ(order.draw.of_token(3).uniform, draw.of_token(3).uniform);
}

TEST(WorkerCommand, SamplesTravel) {
    AddSamples add{DatasetId{3}, std::int64_t{5} << 32U, {}, 7};
    TokenSample& rollout = add.samples.emplace_back(TokenSample{{1, 2}, {-100, 2}});
    rollout.advantages = {0.0F, -1.5F};
    rollout.logprobs = {0.0F, -0.25F};
    rollout.adapter_step = 9;
    TokenSample& weighed = add.samples.emplace_back(TokenSample{{4}, {4}});
    weighed.weights = {0.5F};
    weighed.label = false;
    const AddSamples read = travelled(add);
    EXPECT_EQ(read.dataset, add.dataset);
    EXPECT_EQ(read.first, add.first);
    EXPECT_EQ(read.first_needed, add.first_needed);
    ASSERT_EQ(read.samples.size(), 2U);
    for (std::size_t i = 0; i < read.samples.size(); ++i) {
        EXPECT_EQ(read.samples[i].input_ids, add.samples[i].input_ids);
        EXPECT_EQ(read.samples[i].labels, add.samples[i].labels);
        EXPECT_EQ(read.samples[i].weights, add.samples[i].weights);
        EXPECT_EQ(read.samples[i].advantages, add.samples[i].advantages);
        EXPECT_EQ(read.samples[i].logprobs, add.samples[i].logprobs);
        EXPECT_EQ(read.samples[i].adapter_step, add.samples[i].adapter_step);
        EXPECT_EQ(read.samples[i].label, add.samples[i].label);
    }
}

TEST(WorkerCommand, DamagedBytesAreErrors) {
    const std::string good = to_bytes(LoadAdapter{AdapterId{5}, "runs/a"});
    for (const std::string& bytes :
         {std::string(), good.substr(0, good.size() - 1), good + "x", std::string("\x7f")}) {
        try {
            command_from_bytes(bytes);
            ADD_FAILURE() << bytes.size();
        } catch (const Error& error) {
            EXPECT_TRUE(has(error.what(), "a command cannot be read: ")) << error.what();
        }
    }
}

}  // namespace
}  // namespace loratrain
