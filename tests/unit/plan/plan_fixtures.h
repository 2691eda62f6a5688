#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job.h"
#include "plan/deploy/make_plan.h"
#include "plan/pack/batch_source.h"
#include "plan/plan.h"
#include "plan/schedule/plan_window.h"

namespace loratrain::plan_test {

/// Integers drawn one after another.
class Draw {
  public:
    explicit Draw(std::uint64_t seed);
    int between(int low, int high);
    bool one_in(int n) { return between(1, n) == 1; }

  private:
    std::uint64_t key_;
    std::uint64_t next_ = 0;
};

/// A small model; the head costs little against a layer.
ModelSpec cheap_head_model(std::int64_t layers);

/// A job with its data, everything that planning needs.
struct Case {
    Job job;
    ModelSpec model;
    std::vector<DatasetInfo> datasets;
    Cluster cluster;

    PlannedJob planned() const { return plan_job(job, model, datasets, cluster); }
    Plan plan() const { return planned().plan; }
    PlanReport report() const { return planned().report; }
};

/// `count` samples of `tokens` tokens, all but the first trained.
std::vector<SampleInfo> equal_samples(std::size_t count, std::int32_t tokens);

/// `adapters` adapters a0, a1, ... on one dataset of equal samples, on `ranks` ranks.
Case uniform_case(int adapters, int ranks, std::size_t samples, std::int32_t tokens, int batch);

/// A job drawn at random from `seed`: 1-8 ranks, 1-24 adapters on 1-4 datasets of samples between
/// one token and the capacity, batches of 1-32.
Case random_case(std::uint64_t seed);

/// Stage s + 1 leaves its first layer to stage `s` for the adapters below `divider`.
void share_first_layer(Plan& plan, std::size_t s, std::int32_t divider);

/// Whether the stages compute each of so many adapters, and any other that may come to be, once in
/// every layer, in order, and every stage has a layer that it does not share.
bool cover_every_layer(const std::vector<StagePlan>& stages, std::int32_t layers, int adapters);

/// What describe() says of its plan.
std::string described(const Case& test);

Progress fresh(const Plan& plan);

/// Progress after a window.
void advance(Progress& progress, const Window& window);

/// The only replica's window of plan_joint_eval_window().
inline Window plan_eval_window(const Job& job, const Plan& plan,
                               const std::vector<DatasetInfo>& datasets,
                               const std::vector<AdapterId>& adapters) {
    return plan_joint_eval_window(job, plan, datasets, adapters).common();
}

/// What windows train, a text for each microbatch: " a0@3 7 9", adapters with steps and samples.
inline void add_trained(const Window& window, std::vector<std::string>& all) {
    for (const Microbatch& microbatch : window.microbatches) {
        if (microbatch.evaluation) continue;
        std::string& words = all.emplace_back();
        for (const Segment& segment : microbatch.segments) {
            words += cat(" a", number(segment.adapter), "@", segment.step);
            for (const SampleRef& sample : segment.samples) words += cat(" ", sample.index);
        }
    }
}

/// Samples of global batch (adapter, step).
inline std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                               std::int32_t step) {
    SampleOrders orders;
    return BatchSource(job, plan, adapter, orders).samples(step);
}

/// All problems of an InputError thrown by make_plan, one "where: what (hint)" a line; empty when
/// none is thrown.
std::string problems_of(const Case& test_case);

}  // namespace loratrain::plan_test
