#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job.h"
#include "plan/make_plan.h"
#include "plan/plan.h"
#include "plan/plan_window.h"

namespace loratrain::plan_test {

/// A small model; the head costs little against a layer.
ModelSpec cheap_head_model(std::int64_t layers);

/// A job with its data, everything that planning needs.
struct Case {
    Job job;
    ModelSpec model;
    std::vector<DatasetInfo> datasets;
    Cluster cluster;

    Plan plan() const { return make_plan(job, model, datasets, cluster); }
};

/// `count` samples of `tokens` tokens, all but the first trained.
std::vector<SampleInfo> equal_samples(std::size_t count, std::int32_t tokens);

/// `adapters` adapters a0, a1, ... on one dataset of equal samples, on `ranks` ranks.
Case uniform_case(int adapters, int ranks, std::size_t samples, std::int32_t tokens, int batch);

/// A job drawn at random from `seed`: 1-8 ranks, 1-24 adapters on 1-4 datasets of samples between
/// one token and the capacity, batches of 1-32.
Case random_case(std::uint64_t seed);

Progress fresh(const Plan& plan);

/// Progress after a window.
void advance(Progress& progress, const Window& window);

/// All problems of an InputError thrown by make_plan, one "where: what (hint)" a line; empty when
/// none is thrown.
std::string problems_of(const Case& test_case);

}  // namespace loratrain::plan_test
