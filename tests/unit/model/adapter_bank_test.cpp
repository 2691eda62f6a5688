#include "model/adapter_bank.h"

#include "base/error.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr AdapterId first{0};
constexpr AdapterId second{1};

constexpr AdapterBank::Part all_parts[] = {
    AdapterBank::Part::parameters, AdapterBank::Part::first_moments,
    AdapterBank::Part::second_moments, AdapterBank::Part::gradients};

SmallCase two_adapters() {
    return {small_model(), {small_adapter("a", 4, 0.1), small_adapter("b", 3)}};
}

std::vector<std::vector<float>> state_of(const AdapterBank& bank, AdapterId adapter) {
    std::vector<std::vector<float>> values;
    for (const AdapterBank::Part part : all_parts) {
        values.emplace_back();
        for (const NamedTensor& tensor : bank.download(adapter, part)) {
            values.back().insert(values.back().end(), tensor.values.begin(), tensor.values.end());
        }
    }
    return values;
}

/// One optimizer step of every adapter of the microbatch.
void train_step(WholeStage& test) {
    test.forward(0);
    test.backward();
    for (const Segment& segment : test.microbatch.segments) {
        test.stage->finish_batch(segment.adapter, false);
        const std::size_t a = index(segment.adapter);
        double sum = 0.0;
        test.backend->download(&sum, test.stage->sums().partial + a, sizeof(double));
        test.backend->upload(test.stage->sums().total + a, &sum, sizeof(double));
        test.stage->step(segment.adapter, 1e-2);
    }
}

void expect_counters(const AdapterBank& bank, AdapterId adapter, std::int64_t applied) {
    EXPECT_EQ(bank.counters(adapter).applied_steps, applied);
    EXPECT_EQ(bank.counters(adapter).skipped_steps, 0);
}

TEST(AdapterBank, OnlyThoseAdmittedTakeMemory) {
    SmallCase test = two_adapters();
    const auto bytes_with = [&](const std::vector<AdapterId>& admitted) {
        test.plan.first_admitted = admitted;
        const auto backend = make_backend("cpu", {1, 0});
        const AdapterBank bank(test.job, test.plan, test.plan.replica.stages[0], *backend);
        EXPECT_EQ(bank.residence(second),
                  admitted.size() == 2 ? Residence::resident : Residence::absent);
        return backend->memory().current;
    };
    const std::size_t both = bytes_with({first, second});
    const std::size_t one = bytes_with({first});
    EXPECT_EQ(both - one, adapter_bytes(test.job.adapters[1], test.plan.model, 3));
}

TEST(AdapterBank, AnAdapterThatComesLaterStartsAlike) {
    SmallCase test = two_adapters();
    const auto backend = make_backend("cpu", {1, 0});
    const StagePlan& stage = test.plan.replica.stages[0];
    const AdapterBank all(test.job, test.plan, stage, *backend);
    test.plan.first_admitted = {first};
    AdapterBank later(test.job, test.plan, stage, *backend);
    later.reside(second);
    EXPECT_EQ(state_of(later, second), state_of(all, second));
    expect_counters(later, second, 0);
}

TEST(AdapterBank, SuspensionKeepsTheExactState) {
    const SmallCase test_case = two_adapters();
    WholeStage test(test_case);
    AdapterBank& bank = test.stage->bank();
    for (int step = 0; step < 3; ++step) train_step(test);
    const auto before = state_of(bank, first);
    const auto bytes = test.backend->memory().current;
    const std::int64_t version = bank.version(first);

    bank.suspend(first);
    EXPECT_EQ(bank.residence(first), Residence::suspended);
    EXPECT_EQ(bytes - test.backend->memory().current,
              adapter_bytes(test.job.adapters[0], test.plan.model, 3));
    EXPECT_EQ(state_of(bank, first), before);
    expect_counters(bank, first, 3);
    bank.reside(first);
    EXPECT_EQ(test.backend->memory().current, bytes);
    EXPECT_EQ(state_of(bank, first), before);
    expect_counters(bank, first, 3);
    EXPECT_GT(bank.version(first), version);
}

TEST(AdapterBank, TrainingAfterSuspensionIsTheSameToTheBit) {
    const SmallCase test_case = two_adapters();
    WholeStage steady(test_case);
    WholeStage paused(test_case);
    for (int step = 0; step < 4; ++step) {
        train_step(steady);
        train_step(paused);
        if (step != 1) continue;
        // Another place in memory, and the other adapter changes in between.
        AdapterBank& bank = paused.stage->bank();
        bank.suspend(first);
        bank.suspend(second);
        bank.reside(second);
        bank.reside(first);
    }
    for (const AdapterId adapter : {first, second}) {
        EXPECT_EQ(state_of(paused.stage->bank(), adapter), state_of(steady.stage->bank(), adapter));
    }
}

TEST(AdapterBank, AloneWhileTheOtherIsSuspended) {
    const SmallCase test_case = two_adapters();
    WholeStage test(test_case);
    train_step(test);
    AdapterBank& bank = test.stage->bank();
    bank.suspend(second);
    const auto before = state_of(bank, second);
    const WholeStage both(test_case);
    test.microbatch.segments.pop_back();
    test.packed = pack_layout(test.microbatch);
    test.packed.token_ids.assign(both.packed.token_ids.begin(), both.packed.token_ids.begin() + 12);
    test.packed.targets.assign(both.packed.targets.begin(), both.packed.targets.begin() + 12);
    test.rule.scales.pop_back();
    train_step(test);
    expect_counters(bank, first, 2);
    EXPECT_EQ(state_of(bank, second), before);
    EXPECT_THROW(bank.step(second, 1e-2, test.stage->sums().total), Error);
    EXPECT_THROW(bank.slot(second, 0, Linear::q), Error);
}

TEST(AdapterBank, NoSuspensionInsideAGlobalBatch) {
    const SmallCase test_case = two_adapters();
    WholeStage test(test_case);
    test.forward(0);
    test.backward();
    EXPECT_THROW(test.stage->bank().suspend(first), Error);
}

TEST(AdapterBank, UploadFillsAnAbsentAdapter) {
    SmallCase test = two_adapters();
    const auto backend = make_backend("cpu", {1, 0});
    const StagePlan& stage = test.plan.replica.stages[0];
    AdapterBank all(test.job, test.plan, stage, *backend);
    test.plan.first_admitted.clear();
    AdapterBank bank(test.job, test.plan, stage, *backend);
    const auto bytes = backend->memory().current;
    for (const AdapterBank::Part part :
         {AdapterBank::Part::parameters, AdapterBank::Part::second_moments}) {
        auto tensors = all.download(second, AdapterBank::Part::parameters);
        for (NamedTensor& tensor : tensors) tensor.values.assign(tensor.values.size(), 0.5F);
        bank.upload(second, part, tensors);
        all.upload(second, part, tensors);
    }
    bank.set_counters(second, {7, 1});
    EXPECT_EQ(bank.residence(second), Residence::suspended);
    EXPECT_EQ(backend->memory().current, bytes);
    EXPECT_EQ(state_of(bank, second), state_of(all, second));
    bank.reside(second);
    EXPECT_EQ(state_of(bank, second), state_of(all, second));
    EXPECT_EQ(bank.counters(second).applied_steps, 7);
    EXPECT_EQ(bank.counters(second).skipped_steps, 1);
}

TEST(AdapterBank, ReleaseFreesEverything) {
    SmallCase test = two_adapters();
    const auto backend = make_backend("cpu", {1, 0});
    AdapterBank bank(test.job, test.plan, test.plan.replica.stages[0], *backend);
    const auto bytes = backend->memory().current;
    bank.release(first);
    EXPECT_EQ(bytes - backend->memory().current,
              adapter_bytes(test.job.adapters[0], test.plan.model, 3));
    EXPECT_THROW(bank.download(first, AdapterBank::Part::parameters), Error);
    EXPECT_THROW(bank.reside(first), Error);
    bank.suspend(second);
    bank.release(second);
    EXPECT_EQ(bank.residence(second), Residence::released);
}

TEST(AdapterBank, AdmitMovesInAndOut) {
    const SmallCase test = two_adapters();
    const auto backend = make_backend("cpu", {1, 0});
    AdapterBank bank(test.job, test.plan, test.plan.replica.stages[0], *backend);
    const auto peak = backend->memory().peak;
    bank.admit({second});
    EXPECT_EQ(bank.residence(first), Residence::suspended);
    EXPECT_EQ(bank.residence(second), Residence::resident);
    bank.admit({first});
    EXPECT_EQ(bank.residence(first), Residence::resident);
    EXPECT_EQ(bank.residence(second), Residence::suspended);
    bank.admit({second, first});
    EXPECT_EQ(bank.residence(second), Residence::resident);
    EXPECT_EQ(backend->memory().peak, peak);
}

TEST(AdapterBank, TheJobGrows) {
    SmallCase test = two_adapters();
    const auto backend = make_backend("cpu", {1, 0});
    AdapterBank bank(test.job, test.plan, test.plan.replica.stages[0], *backend);
    const auto before = state_of(bank, first);
    test.job.adapters.push_back(small_adapter("c", 5));
    bank.add_adapters();
    constexpr AdapterId third{2};
    EXPECT_EQ(bank.residence(third), Residence::absent);
    EXPECT_EQ(state_of(bank, first), before);
    bank.reside(third);
    EXPECT_EQ(bank.slot(third, 1, Linear::up).rank, 5);
    expect_counters(bank, third, 0);
    test.job.adapters.resize(static_cast<std::size_t>(test.plan.adapter_capacity) + 1,
                             small_adapter("d", 1));
    EXPECT_THROW(bank.add_adapters(), Error);
}

}  // namespace
}  // namespace loratrain::test
