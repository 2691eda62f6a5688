#include "plan/sweep/trial_load.h"

#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/workload.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

MicrobatchLoad load_of_all(const std::vector<SampleInfo>& samples) {
    MicrobatchLoad sum;
    for (const SampleInfo& sample : samples) {
        const double tokens = sample.tokens;
        sum += {sample.tokens, tokens * tokens, sample.targets};
    }
    return sum;
}

struct DatasetSums {
    MicrobatchLoad train;
    MicrobatchLoad eval;
};

auto all_of(const TrialLoad& load) {
    return std::tie(load.steps, load.tokens, load.samples, load.squares, load.targets,
                    load.parameters, load.r, load.evaluation_tokens, load.evaluation_squares,
                    load.evaluation_targets);
}

TrialLoad trial_load(const AdapterJob& adapter, const AdapterPlan& plan, const DatasetSums& sums,
                     const ModelSpec& model) {
    const double steps = plan.steps_per_epoch;
    TrialLoad load;
    load.steps = plan.total_steps;
    load.samples = static_cast<double>(plan.samples) / steps;
    load.tokens = static_cast<double>(sums.train.tokens) / steps;
    load.squares = sums.train.squares / steps;
    load.targets = static_cast<double>(sums.train.targets) / steps;
    load.parameters = adapter_parameters(adapter, model, model.layers);
    load.r = adapter.r;
    load.evaluation_tokens = sums.eval.tokens;
    load.evaluation_squares = sums.eval.squares;
    load.evaluation_targets = sums.eval.targets;
    return load;
}

}  // namespace

bool operator<(const TrialLoad& a, const TrialLoad& b) {
    return all_of(a) < all_of(b);
}

std::vector<std::int32_t> TrialClasses::counts() const {
    std::vector<std::int32_t> counts;
    counts.reserve(members.size());
    for (const auto& ids : members) counts.push_back(static_cast<std::int32_t>(ids.size()));
    return counts;
}

std::int64_t TrialClasses::trials() const {
    std::int64_t trials = 0;
    for (const auto& ids : members) trials += std::ssize(ids);
    return trials;
}

TrialClasses trial_classes(const Job& job, const ModelSpec& model,
                           std::span<const DatasetInfo> datasets) {
    LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
    Problems problems;
    AdapterChecks checks(job, model, job.path, problems);
    std::map<DatasetId, DatasetSums> sums;
    for (const DatasetId id : used_datasets(job)) {
        const DatasetInfo& info = datasets[index(id)];
        sums[id] = {load_of_all(info.train), load_of_all(info.eval)};
        if (info.train.empty()) {
            problems.add(cat(job.path, ": datasets.", job.dataset(id).name), "has no samples",
                         "trials need samples to train on");
        }
    }
    problems.throw_if_any();
    std::map<TrialLoad, std::vector<AdapterId>> rising;
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        const AdapterJob& adapter = job.adapters[a];
        const AdapterPlan plan = checks.plan(adapter, datasets[index(adapter.dataset)]);
        rising[trial_load(adapter, plan, sums.at(adapter.dataset), model)].push_back(
            static_cast<AdapterId>(a));
    }
    problems.throw_if_any();
    TrialClasses result;
    for (auto entry = rising.rbegin(); entry != rising.rend(); ++entry) {
        result.loads.push_back(entry->first);
        result.members.push_back(std::move(entry->second));
    }
    return result;
}

}  // namespace loratrain
