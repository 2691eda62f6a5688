#include "adapter/adapter_bank.h"

#include "base/error.h"
#include "unit/model/golden_fixture.h"
#include "unit/model/shared_stages.h"
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

void expect_counters(const AdapterBank& bank, AdapterId adapter, std::int64_t applied) {
    EXPECT_EQ(bank.counters(adapter).applied_steps, applied);
    EXPECT_EQ(bank.counters(adapter).skipped_steps, 0);
}

TEST(AdapterBank, OnlyThoseAdmittedTakeMemory) {
    SmallCase test = two_adapters();
    const auto bytes_with = [&](const std::vector<AdapterId>& admitted) {
        test.plan.first_admitted = admitted;
        const auto backend = make_backend("cpu", {1, 0});
        const AdapterBank bank(test.job, only_replica(test.plan), test.plan.replicas[0].stages[0],
                               *backend);
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
    const StagePlan& stage = test.plan.replicas[0].stages[0];
    const AdapterBank all(test.job, only_replica(test.plan), stage, *backend);
    test.plan.first_admitted = {first};
    AdapterBank later(test.job, only_replica(test.plan), stage, *backend);
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
    test.microbatch.columns =
        lora_columns(test_case.job, only_replica(test_case.plan), test.microbatch.segments);
    test.packed = pack_layout(test.microbatch);
    test.packed.token_ids.assign(both.packed.token_ids.begin(), both.packed.token_ids.begin() + 12);
    test.packed.targets.assign(both.packed.targets.begin(), both.packed.targets.begin() + 12);
    test.terms.denominators.pop_back();
    train_step(test);
    expect_counters(bank, first, 2);
    EXPECT_EQ(state_of(bank, second), before);
    EXPECT_THROW(bank.step(second, 1e-2, test.stage->sums().total), Error);
    EXPECT_THROW(bank.slot(second, 0, Linear::q), Error);
}

/// As a replica does that has no rows of a batch.
TEST(AdapterBank, GradientsOfTheLastStepAreTakenForZero) {
    const SmallCase test_case = two_adapters();
    WholeStage test(test_case);
    AdapterBank& bank = test.stage->bank();
    const auto are_zero = [](std::span<const float> values) {
        return std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0F; });
    };
    const auto gradients = [&](AdapterId adapter) {
        return flat(bank.download(adapter, AdapterBank::Part::gradients));
    };
    train_step(test);
    EXPECT_TRUE(are_zero(gradients(first)));
    double squares = -1.0;
    bank.sum_squares(first, &squares);
    EXPECT_EQ(squares, 0.0);
    EXPECT_TRUE(are_zero(bank.gradient_array(second)));
    test.forward(0);
    test.backward();
    EXPECT_FALSE(are_zero(gradients(first)));
    EXPECT_FALSE(are_zero(gradients(second)));
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
    const StagePlan& stage = test.plan.replicas[0].stages[0];
    AdapterBank all(test.job, only_replica(test.plan), stage, *backend);
    test.plan.first_admitted.clear();
    AdapterBank bank(test.job, only_replica(test.plan), stage, *backend);
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
    AdapterBank bank(test.job, only_replica(test.plan), test.plan.replicas[0].stages[0], *backend);
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
    AdapterBank bank(test.job, only_replica(test.plan), test.plan.replicas[0].stages[0], *backend);
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
    AdapterBank bank(test.job, only_replica(test.plan), test.plan.replicas[0].stages[0], *backend);
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

/// The banks of stages that share layers, three adapters in all.
class SharedBanks : public ::testing::Test {
  protected:
    static constexpr std::int32_t layers = 5;

    SharedBanks() {
        test_.job.adapters[1].targets = {true, false, true, false, true, true, false};
        test_.plan.replicas[0].stages = cut_layers(layers, {{1, from(2)}, {3, up_to(1)}});
        for (const StagePlan& stage : test_.plan.replicas[0].stages) add_bank(stage);
    }

    void add_bank(const StagePlan& stage) {
        backends_.push_back(make_backend("cpu", {1, 0}));
        banks_.push_back(std::make_unique<AdapterBank>(test_.job, only_replica(test_.plan), stage,
                                                       *backends_.back()));
    }

    const StagePlan& stage(std::size_t s) const { return test_.plan.replicas[0].stages[s]; }

    /// Each stage's tensors, one after another.
    std::vector<NamedTensor> all(AdapterId adapter, AdapterBank::Part part) const {
        std::vector<NamedTensor> tensors;
        for (const auto& bank : banks_) {
            for (NamedTensor& tensor : bank->download(adapter, part)) tensors.push_back(tensor);
        }
        return tensors;
    }

    SmallCase test_{small_model(layers),
                    {small_adapter("a", 4, 0.1), small_adapter("b", 3), small_adapter("c", 5)}};
    std::vector<std::unique_ptr<Backend>> backends_;
    std::vector<std::unique_ptr<AdapterBank>> banks_;
};

constexpr AdapterId third{2};

TEST_F(SharedBanks, FactorsAreWhereTheAdapterIsComputed) {
    // Per stage the layers, counted from its first one, that each adapter has factors in.
    const std::vector<std::vector<std::vector<std::int32_t>>> want{
        {{0}, {0}, {0, 1}}, {{0, 1, 2}, {0, 1}, {1}}, {{1}, {0, 1}, {0, 1}}};
    for (std::size_t s = 0; s < banks_.size(); ++s) {
        for (const AdapterId adapter : {first, second, third}) {
            SCOPED_TRACE(cat("stage ", s, ", adapter ", number(adapter)));
            std::vector<std::int32_t> got;
            for (std::int32_t l = 0; l < stage(s).layer_count; ++l) {
                const LoraSlot slot = banks_[s]->slot(adapter, l, Linear::q);
                EXPECT_EQ(slot.rank > 0, slot.a != nullptr);
                EXPECT_EQ(slot.rank, banks_[s]->slot(adapter, l, Linear::v).rank);
                if (slot.rank == 0) continue;
                got.push_back(l);
                EXPECT_EQ(slot.rank, test_.job.adapter(adapter).r);
            }
            EXPECT_EQ(got, want[s][index(adapter)]);
        }
    }
}

TEST_F(SharedBanks, ParametersAndMemoryAsPlanned) {
    for (const AdapterId adapter : {first, second, third}) {
        const AdapterJob& job = test_.job.adapter(adapter);
        std::int64_t parameters = 0;
        for (std::size_t s = 0; s < banks_.size(); ++s) {
            SCOPED_TRACE(cat("stage ", s, ", adapter ", number(adapter)));
            const std::int64_t count = banks_[s]->parameters(adapter);
            EXPECT_EQ(count, adapter_parameters(job, test_.plan.model,
                                                layers_of(stage(s), adapter).count));
            EXPECT_EQ(std::ssize(flat(banks_[s]->download(adapter, all_parts[0]))), count);
            parameters += count;
            const auto bytes = backends_[s]->memory().current;
            banks_[s]->suspend(adapter);
            EXPECT_EQ(bytes - backends_[s]->memory().current,
                      adapter_bytes_on(stage(s), adapter, test_.job, test_.plan.model));
        }
        EXPECT_EQ(parameters, adapter_parameters(job, test_.plan.model, layers));
    }
}

TEST_F(SharedBanks, TogetherTheyHoldTheWholeAdapter) {
    const auto backend = make_backend("cpu", {1, 0});
    const AdapterBank whole(test_.job, only_replica(test_.plan), cut_layers(layers, {})[0],
                            *backend);
    for (const AdapterId adapter : {first, second, third}) {
        const auto got = all(adapter, AdapterBank::Part::parameters);
        const auto want = whole.download(adapter, AdapterBank::Part::parameters);
        ASSERT_EQ(got.size(), want.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            EXPECT_EQ(got[i].name, want[i].name);
            EXPECT_EQ(got[i].shape, want[i].shape);
            EXPECT_EQ(got[i].values, want[i].values) << want[i].name;
        }
    }
}

TEST_F(SharedBanks, DropoutKeysAreThoseOfTheLayer) {
    const auto backend = make_backend("cpu", {1, 0});
    const AdapterBank whole(test_.job, only_replica(test_.plan), cut_layers(layers, {})[0],
                            *backend);
    for (std::size_t s = 0; s < banks_.size(); ++s) {
        const LayerRange own = layers_of(stage(s), first);
        for (std::int32_t l = own.first; l < own.first + own.count; ++l) {
            EXPECT_EQ(banks_[s]->slot(first, l - stage(s).first_layer, Linear::up).dropout_key,
                      whole.slot(first, l, Linear::up).dropout_key);
        }
    }
}

TEST_F(SharedBanks, SuspensionKeepsTheExactState) {
    for (std::size_t s = 0; s < banks_.size(); ++s) {
        AdapterBank& bank = *banks_[s];
        fill_factors(test_.job, bank);
        for (const AdapterId adapter : {first, second, third}) {
            bank.upload(adapter, AdapterBank::Part::second_moments,
                        bank.download(adapter, AdapterBank::Part::parameters));
            const auto before = state_of(bank, adapter);
            const auto bytes = backends_[s]->memory().current;
            bank.suspend(adapter);
            EXPECT_EQ(state_of(bank, adapter), before);
            bank.reside(adapter);
            EXPECT_EQ(state_of(bank, adapter), before);
            EXPECT_EQ(backends_[s]->memory().current, bytes);
        }
    }
}

TEST_F(SharedBanks, UploadTakesTheTensorsOfTheStageOnly) {
    const auto whole = all(first, AdapterBank::Part::parameters);
    for (const auto& bank : banks_) {
        auto tensors = bank->download(first, AdapterBank::Part::parameters);
        for (NamedTensor& tensor : tensors) {
            const std::uint64_t key = hash_name(tensor.name);
            for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                tensor.values[i] = uniform_float(key, i);
            }
        }
        bank->upload(first, AdapterBank::Part::first_moments, tensors);
        EXPECT_EQ(flat(bank->download(first, AdapterBank::Part::first_moments)), flat(tensors));
        EXPECT_THROW(bank->upload(first, AdapterBank::Part::first_moments, whole), Error);
        tensors.pop_back();
        EXPECT_THROW(bank->upload(first, AdapterBank::Part::first_moments, tensors), Error);
    }
}

TEST_F(SharedBanks, AnAdapterThatIsAddedGoesWhereThoseAboveItAre) {
    test_.job.adapters.push_back(small_adapter("d", 6));
    constexpr AdapterId fourth{3};
    for (std::size_t s = 0; s < banks_.size(); ++s) {
        banks_[s]->add_adapters();
        banks_[s]->reside(fourth);
        EXPECT_EQ(banks_[s]->slot(fourth, 0, Linear::q).rank, s == 1 ? 0 : 6);
        EXPECT_EQ(banks_[s]->slot(fourth, 1, Linear::q).rank, 6);
    }
    EXPECT_EQ(banks_[1]->slot(fourth, 2, Linear::q).rank, 0);
    const auto names = adapter_tensors(test_.job.adapters[3], test_.plan.model, {0, layers},
                                       StatePart::parameters);
    EXPECT_EQ(all(fourth, AdapterBank::Part::parameters).size(), names.size());
}

TEST(SharedAdapterBanks, StartFromAFile) {
    GoldenStage golden("llama", "final", 64);
    const std::vector<StagePlan> stages = cut_layers(4, {{1, up_to(1)}, {2, from(2)}});
    for (const AdapterId adapter : {first, second, third}) {
        std::vector<float> got;
        for (const StagePlan& stage : stages) {
            const auto backend = make_backend("cpu", {1, 0});
            const AdapterBank bank(golden.job, only_replica(golden.plan), stage, *backend);
            const auto values = flat(bank.download(adapter, AdapterBank::Part::parameters));
            got.insert(got.end(), values.begin(), values.end());
        }
        EXPECT_EQ(got, flat(golden.stage->bank().download(adapter, all_parts[0])));
        EXPECT_GT(norm(got), 1.0);
    }
}

}  // namespace
}  // namespace loratrain::test
