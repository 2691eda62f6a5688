#include <map>

#include "adapter/adapter_bank.h"
#include "base/error.h"
#include "io/adapters/adapter_file.h"
#include "io/tensor_names.h"
#include "support/files.h"
#include "support/made_up_form.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr AdapterId only{0};

AdapterJob made_up_adapter() {
    AdapterJob adapter = small_adapter("a", 4);
    adapter.form = made_up_form();
    adapter.targets = {true, false, true, false, false, true, true};
    return adapter;
}

/// A bank that holds one adapter of the made-up form.
class MadeUpForm : public ::testing::Test {
  protected:
    std::unique_ptr<AdapterBank> bank(const SmallCase& test) const {
        return std::make_unique<AdapterBank>(test.job, only_replica(test.plan),
                                             test.plan.replicas[0].stages[0], *backend_);
    }
    /// By name; what has no values of its own is left out.
    static std::map<std::string, std::vector<float>> state(const AdapterBank& bank) {
        std::map<std::string, std::vector<float>> values;
        for (const StatePart part :
             {StatePart::parameters, StatePart::first_moments, StatePart::second_moments}) {
            for (const NamedTensor& tensor : bank.download(only, part)) {
                values[cat(tensor.name, static_cast<int>(part))] = tensor.values;
            }
        }
        return values;
    }
    static std::vector<float> values_of(const AdapterBank& bank, StatePart part,
                                        const std::string& suffix) {
        for (const NamedTensor& tensor : bank.download(only, part)) {
            if (tensor.name.ends_with("layers.1.self_attn.q_proj." + suffix)) return tensor.values;
        }
        return {};
    }

    SmallCase case_{small_model(), {made_up_adapter()}};
    std::unique_ptr<Backend> backend_ = make_backend("cpu", {1, 0});
};

TEST_F(MadeUpForm, TakesTheMemoryThatIsPlanned) {
    const auto full = bank(case_);
    const auto bytes = backend_->memory().current;
    full->suspend(only);
    EXPECT_EQ(bytes - backend_->memory().current,
              adapter_bytes(case_.job.adapters[0], case_.plan.model, 3));
    EXPECT_EQ(full->parameters(only),
              adapter_parameters(case_.job.adapters[0], case_.plan.model, 3));
}

TEST_F(MadeUpForm, BeginsAsItsTableSays) {
    const auto begun = bank(case_);
    const std::string module = module_path(1, Linear::q);
    const double bound = 1.0 / std::sqrt(32.0);
    for (const auto& [name, suffix, count] :
         {std::tuple{"lora_A", "lora_A.weight", 4U * 32U},
          std::tuple{"m", "lora_magnitude_vector", 32U}, std::tuple{"s", "lora_scale", 4U}}) {
        SCOPED_TRACE(name);
        const std::vector<float> got = values_of(*begun, StatePart::parameters, suffix);
        const std::uint64_t key = tensor_key(42, "a", module + "." + name);
        ASSERT_EQ(got.size(), count);
        for (std::size_t i = 0; i < count; ++i) {
            EXPECT_EQ(got[i], (2.0F * uniform_float(key, i) - 1.0F) * static_cast<float>(bound));
        }
    }
    EXPECT_EQ(values_of(*begun, StatePart::parameters, "lora_B.weight"),
              std::vector<float>(32 * 4, 0.0F));
    EXPECT_TRUE(values_of(*begun, StatePart::gradients, "lora_scale").empty());
}

TEST_F(MadeUpForm, StepsAtTheRatesOfItsGroups) {
    const auto stepped = bank(case_);
    const auto before = state(*stepped);
    auto gradients = stepped->download(only, StatePart::gradients);
    for (NamedTensor& tensor : gradients) tensor.values.assign(tensor.values.size(), 0.5F);
    stepped->upload(only, StatePart::gradients, gradients);
    double sum = 0.0;
    stepped->sum_squares(only, &sum);
    EXPECT_EQ(sum, 0.25 * static_cast<double>(stepped->parameters(only)));
    stepped->step(only, 1e-3, &sum);
    EXPECT_EQ(stepped->counters(only).applied_steps, 1);
    for (const NamedTensor& tensor : stepped->download(only, StatePart::parameters)) {
        const bool is_b = tensor.name.ends_with("lora_B.weight");
        const bool frozen = tensor.name.ends_with("lora_scale");
        const float change = frozen ? 0.0F : (is_b ? -16e-3F : -1e-3F);
        const std::vector<float>& old = before.at(tensor.name + "0");
        for (std::size_t i = 0; i < old.size(); ++i) {
            ASSERT_NEAR(tensor.values[i] - old[i], change, 1e-7) << tensor.name;
        }
    }
    sum = std::numeric_limits<double>::quiet_NaN();
    stepped->step(only, 1e-3, &sum);
    EXPECT_EQ(stepped->counters(only).applied_steps, 1);
    EXPECT_EQ(stepped->counters(only).skipped_steps, 1);
}

TEST_F(MadeUpForm, ItsStateComesAndGoes) {
    const auto first = bank(case_);
    for (const StatePart part :
         {StatePart::parameters, StatePart::first_moments, StatePart::second_moments}) {
        auto tensors = first->download(only, part);
        for (NamedTensor& tensor : tensors) {
            const std::uint64_t key = hash_name(cat(tensor.name, static_cast<int>(part)));
            for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                tensor.values[i] = uniform_float(key, i);
            }
        }
        first->upload(only, part, tensors);
    }
    const auto before = state(*first);
    first->suspend(only);
    EXPECT_EQ(state(*first), before);
    first->reside(only);
    EXPECT_EQ(state(*first), before);

    SmallCase later = case_;
    later.plan.first_admitted.clear();
    const auto second = bank(later);
    for (const StatePart part :
         {StatePart::second_moments, StatePart::parameters, StatePart::first_moments}) {
        second->upload(only, part, first->download(only, part));
    }
    EXPECT_EQ(state(*second), before);
    second->reside(only);
    EXPECT_EQ(state(*second), before);
}

TEST_F(MadeUpForm, IsExportedAndReadAgain) {
    const test::TempDir temp;
    const auto exported = bank(case_);
    auto tensors = exported->download(only, StatePart::parameters);
    for (NamedTensor& tensor : tensors) {
        for (float& value : tensor.values) value += 0.25F;
    }
    write_adapter(temp.path(), case_.job.adapters[0], case_.plan.model, "some/model", tensors);

    SmallCase continued = case_;
    continued.job.adapters[0].init_from = temp.path();
    const auto read = bank(continued);
    EXPECT_EQ(flat(read->download(only, StatePart::parameters)), flat(tensors));
    EXPECT_NE(test::get(temp.file("adapter_config.json")).find("\"use_dora\": true"),
              std::string::npos);

    AdapterJob plain = continued.job.adapters[0];
    plain.form = lora_form();
    EXPECT_THROW(AdapterFile(temp.path(), plain, case_.plan.model), InputError);
    write_adapter(temp.path(), plain, case_.plan.model, "some/model", tensors);
    EXPECT_THROW(bank(continued), InputError);
}

}  // namespace
}  // namespace loratrain::test
