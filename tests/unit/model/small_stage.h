#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "model/stage.h"
#include "plan/deploy/make_plan.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/lora_columns.h"
#include "support/small_model.h"

namespace loratrain::test {

inline AdapterJob small_adapter(const std::string& name, int r, double dropout = 0.0) {
    AdapterJob adapter;
    adapter.name = name;
    adapter.r = r;
    adapter.lora_alpha = 2.0 * r;
    adapter.lora_dropout = dropout;
    adapter.global_batch_size = 2;
    return adapter;
}

inline AdapterJob small_dora(const std::string& name, int r, double dropout = 0.0) {
    AdapterJob adapter = small_adapter(name, r, dropout);
    adapter.use_dora = true;
    adapter.form = form_of(adapter);
    return adapter;
}

inline AdapterJob small_vera(const std::string& name, int r, double dropout = 0.0) {
    AdapterJob adapter = small_adapter(name, r, dropout);
    adapter.peft_type = PeftType::vera;
    adapter.form = form_of(adapter);
    return adapter;
}

/// A job of `adapters` on one dataset of ten samples of 12 tokens, planned for `ranks` ranks.
struct SmallCase {
    SmallCase(const ModelSpec& model, const std::vector<AdapterJob>& adapters, int ranks = 1,
              Precision precision = Precision::fp32) {
        job.adapters = adapters;
        job.datasets.emplace_back();
        job.datasets.back().name = "samples";
        job.model.precision = precision;
        job.parallel.microbatch_tokens = 64;
        infos.push_back({std::vector<SampleInfo>(10, {12, 11}), {}});
        cluster.ranks = ranks;
        plan = make_plan(job, model, infos, cluster);
        weights = synthetic_base_weights(model, 5);
    }

    /// After a change of the job.
    void make_plan_again() { plan = make_plan(job, weights->spec(), infos, cluster); }

    std::unique_ptr<Stage> stage(Backend& backend, std::size_t index = 0) const {
        return std::make_unique<Stage>(job, only_replica(plan), index, *weights, backend);
    }

    Job job;
    std::vector<DatasetInfo> infos;
    Cluster cluster;
    Plan plan;
    std::shared_ptr<WeightSource> weights;
};

/// A and B random, so that every gradient is different from zero; by name, wherever they lie.
inline void fill_factors(const Job& job, AdapterBank& bank) {
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        const auto adapter = static_cast<AdapterId>(a);
        auto tensors = bank.download(adapter, AdapterBank::Part::parameters);
        for (NamedTensor& tensor : tensors) {
            for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                const float value = 0.3F * uniform_float(hash_name(tensor.name) + a, i) - 0.15F;
                const bool near_norms = tensor.name.ends_with("magnitude_vector");
                tensor.values[i] = near_norms ? tensor.values[i] * (1.0F + value) : value;
            }
        }
        bank.upload(adapter, AdapterBank::Part::parameters, tensors);
    }
}

inline std::vector<float> flat(const std::vector<NamedTensor>& tensors) {
    std::vector<float> values;
    for (const NamedTensor& tensor : tensors) {
        values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
    return values;
}

inline double norm(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum);
}

inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> difference(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
    return norm(difference) / norm(b);
}

/// A stage that holds the whole model, and one microbatch with a sample of every adapter.
struct WholeStage {
    explicit WholeStage(const SmallCase& test_case, ObjectiveOf of = objective_of)
        : job(test_case.job),
          plan(test_case.plan),
          backend(make_backend("cpu", {1, 0})),
          stage(std::make_unique<Stage>(job, only_replica(plan), 0, *test_case.weights, *backend,
                                        of)) {
        for (std::size_t a = 0; a < job.adapters.size(); ++a) {
            Segment segment;
            segment.adapter = static_cast<AdapterId>(a);
            segment.step = 3;
            segment.samples.push_back({static_cast<std::int32_t>(a), 12});
            microbatch.segments.push_back(segment);
            terms.denominators.push_back(11);
        }
        pack();
        fill_factors(job, stage->bank());
    }

    /// The rows and columns of the microbatch, after a change of its segments.
    void pack() {
        microbatch.columns = lora_columns(job, only_replica(plan), microbatch.segments);
        packed = pack_layout(microbatch);
        for (std::size_t row = 0; row < packed.positions.size(); ++row) {
            packed.token_ids.push_back(static_cast<std::int32_t>(uniform_int(1, row, 61)));
            const bool last = row + 1 == packed.positions.size() || packed.positions[row + 1] == 0;
            packed.targets.push_back(last ? -100
                                          : static_cast<std::int32_t>(uniform_int(2, row, 61)));
        }
    }

    std::vector<NamedTensor> parameters(std::size_t adapter) const {
        return stage->bank().download(static_cast<AdapterId>(adapter),
                                      AdapterBank::Part::parameters);
    }
    std::vector<NamedTensor> gradients(std::size_t adapter) const {
        return stage->bank().download(static_cast<AdapterId>(adapter),
                                      AdapterBank::Part::gradients);
    }
    void upload(std::size_t adapter, const std::vector<NamedTensor>& tensors) const {
        stage->bank().upload(static_cast<AdapterId>(adapter), AdapterBank::Part::parameters,
                             tensors);
    }

    /// Mean token loss of an adapter's samples.
    double forward(std::size_t adapter) {
        const std::size_t bytes = job.adapters.size() * sizeof(double);
        backend->zero(stage->sums().loss, bytes);
        forward_in_slot(0);
        double sum = 0.0;
        backend->download(&sum, stage->sums().loss + adapter, sizeof(double));
        return sum / 11.0;
    }
    void forward_in_slot(std::int32_t slot) {
        stage->forward(slot, microbatch,
                       {packed.token_ids, packed.targets, packed.positions, packed.sample_ids,
                        packed.offsets, packed.weights, packed.advantages, packed.logprobs},
                       terms);
    }
    void backward() { stage->backward(0, {}, {}); }

    Job job;
    Plan plan;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Stage> stage;
    Microbatch microbatch;
    PackedBatch packed;
    LossTerms terms;
};

/// One optimizer step of every adapter of the microbatch.
inline void train_step(WholeStage& test) {
    test.forward(0);
    test.backward();
    for (const Segment& segment : test.microbatch.segments) {
        test.stage->finish_batch(segment.adapter, false);
        double sum = 0.0;
        test.backend->download(&sum, test.stage->sums().partial + index(segment.adapter),
                               sizeof(double));
        test.stage->set_total(segment.adapter, sum);
        test.stage->step(segment.adapter, 1e-2);
    }
}

/// An adapter beside `special` has the same loss and gradients as beside a plain one of rank 4.
inline void expect_others_unchanged(const AdapterJob& special) {
    const AdapterJob other = small_adapter("other", 3, 0.1);
    WholeStage with(SmallCase(small_model(), {special, other}));
    WholeStage without(SmallCase(small_model(), {small_adapter("a", 4), other}));
    EXPECT_EQ(with.forward(1), without.forward(1));
    EXPECT_NE(with.forward(0), without.forward(0));
    with.backward();
    without.backward();
    EXPECT_EQ(flat(with.gradients(1)), flat(without.gradients(1)));
}

/// The gradients of an adapter's tensors, one by one, are slopes of its loss: after forward() and
/// backward().
inline void expect_slopes(WholeStage& whole, std::size_t adapter, double least = 1e-5) {
    const std::vector<NamedTensor> parameters = whole.parameters(adapter);
    const std::vector<NamedTensor> gradients = whole.gradients(adapter);
    for (std::size_t t = 0; t < gradients.size(); ++t) {
        ASSERT_EQ(parameters[t].name, gradients[t].name);
        const double size = norm(gradients[t].values);
        ASSERT_GT(size, least) << gradients[t].name;
        constexpr double h = 3e-2;
        const auto moved = [&](double by) {
            std::vector<NamedTensor> changed = parameters;
            for (std::size_t i = 0; i < changed[t].values.size(); ++i) {
                changed[t].values[i] += static_cast<float>(by * gradients[t].values[i] / size);
            }
            whole.upload(adapter, changed);
            const double loss = whole.forward(adapter);
            whole.upload(adapter, parameters);
            return loss;
        };
        EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), size, 0.02 * size + 2e-5)
            << parameters[t].name;
    }
}

/// Of the three adapters of a case.
inline void expect_segmented_as_augmented(SmallCase test_case) {
    WholeStage augmented(test_case);
    test_case.plan.replicas[0].pad_columns = 0;
    WholeStage segmented(test_case);
    for (const std::size_t a : {0U, 1U, 2U}) {
        EXPECT_NEAR(segmented.forward(a), augmented.forward(a), 1e-6);
    }
    augmented.backward();
    segmented.backward();
    for (const std::size_t a : {0U, 1U, 2U}) {
        EXPECT_LE(distance(flat(segmented.gradients(a)), flat(augmented.gradients(a))), 4e-6);
    }
}

/// Of the first adapter of a case: it leaves so many bytes when it is suspended.
inline void expect_adapter_bytes_as_planned(const SmallCase& test_case) {
    const WholeStage whole(test_case);
    const std::size_t with = whole.backend->memory().current;
    whole.stage->bank().suspend(AdapterId{0});
    EXPECT_EQ(with - whole.backend->memory().current,
              adapter_bytes_on(test_case.plan.replicas[0].stages[0], AdapterId{0}, test_case.job,
                               test_case.plan.model));
}

}  // namespace loratrain::test
