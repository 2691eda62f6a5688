#include <gtest/gtest.h>

#include "base/dynamic_map.h"
#include "io/safetensors.h"
#include "support/device_data.h"
#include "support/golden_path.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// The same codes but where two were as near.
void expect_codes(const std::vector<std::uint8_t>& got, const std::vector<float>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    std::size_t others = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const float difference = std::fabs(static_cast<float>(got[i]) - expected[i]);
        EXPECT_LE(difference, 1.0F) << i;
        if (difference > 0.0F) ++others;
    }
    EXPECT_LE(others, 2U);
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected,
                 double relative) {
    EXPECT_LE(distance(got, expected), relative);
}

/// tests/golden/make_adamw_8bit.py: of bitsandbytes.
TEST(AdamW8bit, StepsAsBitsandbytes) {
    const SafetensorsFile golden(golden_path("adamw_8bit/steps.safetensors"));
    const std::vector<float> start = golden.read_floats("start");
    const std::vector<float> gradients = golden.read_floats("gradients");
    const auto backend = make_backend("cpu", {1, 0});
    const std::size_t blocks = golden.read_floats("scales1").size();
    const DeviceVector<float> parameters(*backend, start);
    const DeviceVector<float> gradient(*backend, start);
    const DeviceVector<std::uint8_t> first(*backend, std::vector<std::uint8_t>(start.size()));
    const DeviceVector<std::uint8_t> second(*backend, std::vector<std::uint8_t>(start.size()));
    const DeviceVector<float> first_scales(*backend, std::vector<float>(blocks));
    const DeviceVector<float> second_scales(*backend, std::vector<float>(blocks));
    const DeviceVector<double> sumsq(*backend, {1.0});
    const DeviceVector<std::int64_t> counters(*backend, {0, 0});
    AdamW8bit op;
    op.step.parameters = parameters.data();
    op.step.gradients = gradient.data();
    op.step.count = std::ssize(start);
    op.step.grad_sumsq = sumsq.data();
    op.step.applied_steps = counters.data();
    op.step.skipped_steps = counters.data() + 1;
    op.step.learning_rate = 1e-2;
    op.step.beta2 = 0.95;
    op.step.weight_decay = 0.1;
    op.first_codes = first.data();
    op.second_codes = second.data();
    op.first_scales = first_scales.data();
    op.second_scales = second_scales.data();
    for (std::size_t from = 0; from < gradients.size(); from += start.size()) {
        backend->upload(gradient.data(), gradients.data() + from, start.size() * sizeof(float));
        backend->adamw_8bit(op);
    }
    expect_near(parameters.download(), golden.read_floats("parameters"), 1e-6);
    expect_near(first_scales.download(), golden.read_floats("scales1"), 1e-6);
    expect_near(second_scales.download(), golden.read_floats("scales2"), 1e-6);
    expect_codes(first.download(), golden.read_floats("codes1"));
    expect_codes(second.download(), golden.read_floats("codes2"));
}

AdapterJob coded(const std::string& name, int r) {
    AdapterJob adapter = small_adapter(name, r);
    adapter.optim = Optim::adamw_8bit;
    return adapter;
}

/// Of its tensors some have 4096 numbers and more, also in blocks that are not whole.
SmallCase coded_case() {
    ModelSpec model = small_model();
    model.dense().size = 136;
    model.vocab_size = 80;
    return {model, {coded("a", 61), small_adapter("plain", 3)}};
}

std::vector<NamedTensor> moments_of(const WholeStage& test, AdapterBank::Part part) {
    return test.stage->bank().download(AdapterId{0}, part);
}

constexpr AdapterBank::Part moved_parts[] = {AdapterBank::Part::parameters,
                                             AdapterBank::Part::first_moments,
                                             AdapterBank::Part::second_moments};

TEST(AdamW8bit, SmallTensorsAndEmbeddingsKeepFp32) {
    SmallCase test_case = coded_case();
    test_case.job.adapters[0].targets_embedding = true;
    test_case.make_plan_again();
    WholeStage test(test_case);
    train_step(test);
    // A of the embedding would be large enough.
    std::size_t others = 0;
    std::size_t coded = 0;
    for (const NamedTensor& tensor : moments_of(test, AdapterBank::Part::second_moments)) {
        std::vector<std::uint8_t> codes(256);
        std::vector<float> first(tensor.values.begin(), tensor.values.begin() + 256);
        const std::vector<float> before = first;
        const float scale = encode_again(unsigned_dynamic_map(), first, codes.data());
        decode_block(unsigned_dynamic_map(), codes, scale, first.data());
        const bool embedding = tensor.name.find("embed_tokens") != std::string::npos;
        const bool wanted = tensor.values.size() >= 4096 && !embedding;
        EXPECT_EQ(first == before, wanted) << tensor.name;
        ++(wanted ? coded : others);
    }
    EXPECT_GT(coded, 0U);
    EXPECT_GT(others, 2U);
}

TEST(AdamW8bit, TakesTheMemoryThatIsPlanned) {
    const SmallCase test_case = coded_case();
    WholeStage whole(test_case);
    const std::size_t with = whole.backend->memory().current;
    whole.stage->bank().suspend(AdapterId{0});
    const std::uint64_t planned = adapter_bytes_on(
        test_case.plan.replicas[0].stages[0], AdapterId{0}, test_case.job, test_case.plan.model);
    EXPECT_EQ(with - whole.backend->memory().current, planned);
    Job plain = test_case.job;
    plain.adapters[0].optim = Optim::adamw_torch;
    EXPECT_LT(planned, adapter_bytes_on(test_case.plan.replicas[0].stages[0], AdapterId{0}, plain,
                                        test_case.plan.model));
}

/// In host memory, and as files have it: then it goes on to the bit, and others do not notice.
TEST(AdamW8bit, ComesBackToTheBit) {
    WholeStage straight(coded_case());
    WholeStage suspended(coded_case());
    WholeStage reloaded(coded_case());
    for (int i = 0; i < 4; ++i) {
        for (WholeStage* test : {&straight, &suspended, &reloaded}) train_step(*test);
        suspended.stage->bank().suspend(AdapterId{0});
        suspended.stage->bank().reside(AdapterId{0});
        AdapterBank& bank = reloaded.stage->bank();
        std::vector<std::vector<NamedTensor>> parts;
        for (const AdapterBank::Part part : moved_parts) {
            parts.push_back(bank.download(AdapterId{0}, part));
        }
        const AdapterBank::Counters counters = bank.counters(AdapterId{0});
        bank.release(AdapterId{0}, Residence::absent);
        for (std::size_t p = 0; p < parts.size(); ++p) {
            bank.upload(AdapterId{0}, moved_parts[p], parts[p]);
        }
        bank.set_counters(AdapterId{0}, counters);
        bank.reside(AdapterId{0});
    }
    for (const AdapterBank::Part part : moved_parts) {
        EXPECT_EQ(flat(moments_of(suspended, part)), flat(moments_of(straight, part)));
        EXPECT_EQ(flat(moments_of(reloaded, part)), flat(moments_of(straight, part)));
    }
    SmallCase plain = coded_case();
    plain.job.adapters[0].optim = Optim::adamw_torch;
    WholeStage beside(plain);
    for (int i = 0; i < 4; ++i) train_step(beside);
    EXPECT_EQ(flat(beside.parameters(1)), flat(straight.parameters(1)));
    EXPECT_NE(flat(beside.parameters(0)), flat(straight.parameters(0)));
    EXPECT_LE(distance(flat(straight.parameters(0)), flat(beside.parameters(0))), 0.02);
}

/// A and B at two rates, and the layers' tensors one by one.
TEST(AdamW8bit, RateGroupsAreSteppedEach) {
    SmallCase test_case = coded_case();
    test_case.job.adapters[0].loraplus_lr_ratio = 4.0;
    test_case.job.adapters[0].form = form_of(test_case.job.adapters[0]);
    test_case.make_plan_again();
    SmallCase plain = test_case;
    plain.job.adapters[0].optim = Optim::adamw_torch;
    WholeStage one(test_case);
    WholeStage other(plain);
    train_step(one);
    train_step(other);
    // The first step is made with moments of 0, which codes keep.
    EXPECT_EQ(flat(one.parameters(0)), flat(other.parameters(0)));
    EXPECT_EQ(one.stage->bank().counters(AdapterId{0}).applied_steps, 1);
}

}  // namespace
}  // namespace loratrain::test
