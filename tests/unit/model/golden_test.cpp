#include "io/tensor_names.h"
#include "plan/schedule/lora_columns.h"
#include "unit/model/golden_fixture.h"

namespace loratrain::test {
namespace {

MicrobatchRows rows_of(const PackedBatch& batch) {
    return {batch.token_ids, batch.targets, batch.positions, batch.sample_ids, batch.offsets};
}

class Golden : public ::testing::TestWithParam<std::string> {};

/// Of all adapters of a file.
void expect_first_step_gradients(const std::string& family, const std::string& list) {
    for (const std::int64_t microbatch_tokens : {64, 4096}) {
        GoldenStage golden(family, "init", microbatch_tokens, list);
        Progress progress;
        progress.steps.assign(golden.job.adapters.size(), 0);
        progress.stopped.assign(golden.job.adapters.size(), false);
        const Window window = plan_window(golden.job, golden.plan, golden.infos, progress, 1);
        std::vector<DatasetId> datasets;
        for (const AdapterJob& adapter : golden.job.adapters) datasets.push_back(adapter.dataset);
        Loader loader(golden.files, datasets, true);
        loader.start(window);
        for (const Microbatch& microbatch : window.microbatches) {
            LossTerms terms;
            for (const Segment& segment : microbatch.segments) {
                for (const BatchPlan& batch : window.batches) {
                    if (batch.adapter != segment.adapter) continue;
                    terms.denominators.push_back(batch.denominator);
                }
            }
            const PackedBatch packed = loader.next();
            golden.stage->forward(0, microbatch, rows_of(packed), terms);
            golden.stage->backward(0, {}, {});
        }
        for (std::size_t a = 0; a < golden.job.adapters.size(); ++a) {
            const std::string& name = golden.job.adapters[a].name;
            SafetensorsFile expected(golden_path(family) + "/adapters/" + name +
                                     "/grad_step1.safetensors");
            expected.rename([&](const std::string& tensor) {
                return peft_name_of_files(golden.weights->spec(), tensor);
            });
            const auto gradients = golden.stage->bank().download(static_cast<AdapterId>(a),
                                                                 AdapterBank::Part::gradients);
            EXPECT_EQ(gradients.size(), expected.entries().size()) << name;
            for (const NamedTensor& gradient : gradients) {
                // A parameter of a module of its own in PEFT, as it is not in adapters' files.
                const std::string of_module = gradient.name + ".weight";
                const bool own = expected.entries().contains(of_module);
                const std::vector<float> wanted =
                    expected.read_floats(own ? of_module : gradient.name);
                EXPECT_LE(relative_difference(gradient.values, wanted), 2e-5)
                    << name << " " << gradient.name << ", microbatch " << microbatch_tokens;
            }
        }
    }
}

TEST_P(Golden, FirstStepGradientsEqualThoseOfPeft) {
    expect_first_step_gradients(GetParam(), "golden.json");
}

TEST(GoldenForms, FirstStepGradientsEqualThoseOfPeft) {
    for (const char* family : {"llama", "qwen2", "smollm3", "granite", "granitemoe", "gemma2",
                               "gemma3_text", "gemma3"}) {
        expect_first_step_gradients(family, "forms.json");
    }
}

TEST(GoldenTokens, FirstStepGradientsEqualThoseOfPeft) {
    for (const char* family : {"llama", "qwen2", "granite", "gemma2"}) {
        expect_first_step_gradients(family, "tokens.json");
    }
}

TEST_P(Golden, LogitsOfFinalAdaptersEqualThoseOfPeft) {
    GoldenStage golden(GetParam(), "final", 4096);
    Microbatch microbatch;
    PackedBatch packed;
    for (std::size_t a = 0; a < golden.job.adapters.size(); ++a) {
        Segment segment;
        segment.adapter = static_cast<AdapterId>(a);
        for (std::int32_t s = 0; s < 3; ++s) {
            segment.samples.push_back(
                {s, golden.infos[a].train[static_cast<std::size_t>(s)].tokens});
        }
        microbatch.segments.push_back(segment);
    }
    microbatch.columns = lora_columns(golden.job, only_replica(golden.plan), microbatch.segments);
    packed = pack_layout(microbatch);
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            const TokenSample tokens =
                golden.files.train[index(segment.adapter)].read(sample.index);
            packed.token_ids.insert(packed.token_ids.end(), tokens.input_ids.begin(),
                                    tokens.input_ids.end());
        }
    }
    golden.stage->forward(0, microbatch, rows_of(packed), {{}, true});
    const std::vector<float> logits = golden.stage->logits(0);
    std::size_t row = 0;
    const auto vocab = static_cast<std::size_t>(golden.plan.model.vocab_size);
    for (const Segment& segment : microbatch.segments) {
        const std::string& name = golden.job.adapter(segment.adapter).name;
        const SafetensorsFile expected(golden_path(GetParam()) + "/adapters/" + name +
                                       "/eval_logits.safetensors");
        for (std::size_t s = 0; s < segment.samples.size(); ++s) {
            const std::vector<float> want = expected.read_floats("sample" + std::to_string(s));
            const auto rows = static_cast<std::size_t>(segment.samples[s].tokens);
            ASSERT_EQ(want.size(), rows * vocab);
            float largest = 0.0F;
            float worst = 0.0F;
            for (std::size_t i = 0; i < want.size(); ++i) {
                largest = std::max(largest, std::abs(want[i]));
                worst = std::max(worst, std::abs(want[i] - logits[row * vocab + i]));
            }
            EXPECT_LE(worst, 1e-5F * largest) << name << " sample " << s;
            row += rows;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(compared_families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace loratrain::test
