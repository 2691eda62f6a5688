#include "plan/sweep/trial_load.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "plan/cost/cost_model.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/workload.h"
#include "plan/memory/memory_model.h"
#include "plan/rungs.h"

namespace loratrain {

namespace {

MicrobatchLoad load_of_all(const std::vector<SampleInfo>& samples, const AttentionSpan& span) {
    MicrobatchLoad sum;
    for (const SampleInfo& sample : samples) {
        sum += {sample.tokens, span.squares(sample.tokens), sample.targets};
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
                    load.evaluation_targets, load.rungs, load.rung_share);
}

/// The classes by falling load.
TrialClasses classes_of_loads(std::map<TrialLoad, std::vector<AdapterId>>& rising) {
    TrialClasses result;
    for (auto entry = rising.rbegin(); entry != rising.rend(); ++entry) {
        result.loads.push_back(entry->first);
        result.members.push_back(std::move(entry->second));
    }
    return result;
}

/// Steps of a trial at its rungs, the last one all of them; each at least one more than before.
std::vector<std::int32_t> steps_at_rungs(const HalvingRule& rule, std::int32_t steps,
                                         std::int32_t warmup) {
    std::vector<std::int32_t> rungs{steps};
    double share = 1.0;
    for (int k = 1; k < rule.rungs; ++k) {
        share /= rule.reduction_factor;
        const auto share_of_steps = static_cast<std::int32_t>(std::ceil(share * steps - 1e-9));
        const std::int32_t step = std::max(share_of_steps, warmup + 1);
        if (step < rungs.front()) rungs.insert(rungs.begin(), step);
    }
    return rungs;
}

/// Per trial how many rungs it passes.
std::map<AdapterId, std::size_t> passed_rungs(const Job& job, const HalvingRule& rule) {
    constexpr std::uint64_t purpose = 0x68616c76;
    std::map<DatasetId, std::vector<std::pair<std::uint64_t, AdapterId>>> of_dataset;
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        of_dataset[job.adapters[a].dataset].emplace_back(mix_key(purpose, a),
                                                         static_cast<AdapterId>(a));
    }
    std::map<AdapterId, std::size_t> passed;
    for (auto& [dataset, trials] : of_dataset) {
        std::sort(trials.begin(), trials.end());
        auto places = static_cast<std::int64_t>(trials.size());
        for (int k = 1; k < rule.rungs; ++k) {
            places = std::max<std::int64_t>(1, places / rule.reduction_factor);
            for (std::int64_t i = 0; i < places; ++i) {
                ++passed[trials[static_cast<std::size_t>(i)].second];
            }
        }
    }
    return passed;
}

TrialLoad trial_load(const AdapterJob& adapter, const AdapterPlan& plan, const DatasetSums& sums,
                     const ModelSpec& model) {
    const double steps = plan.steps_per_epoch;
    TrialLoad load;
    load.steps = plan.total_steps;
    // Of files with weights as if all had the mean one.
    const double epoch = static_cast<double>(plan.epoch_samples()) /
                         static_cast<double>(std::max<std::int64_t>(1, plan.samples));
    load.samples = static_cast<double>(plan.epoch_samples()) / steps;
    load.tokens = epoch * static_cast<double>(sums.train.tokens) / steps;
    load.squares = epoch * sums.train.squares / steps;
    load.targets = epoch * static_cast<double>(sums.train.targets) / steps;
    load.parameters = adapter_parameters(adapter, model, model.layers);
    load.r = adapter.largest_rank();
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
    const AttentionSpan span(model);
    std::map<DatasetId, DatasetSums> sums;
    for (const DatasetId id : used_datasets(job)) {
        const DatasetInfo& info = datasets[index(id)];
        sums[id] = {load_of_all(info.train, span), load_of_all(info.eval, span)};
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
    return classes_of_loads(rising);
}

TrialClasses remaining_trials(const TrialClasses& trials,
                              std::span<const std::int32_t> steps_left) {
    std::map<TrialLoad, std::vector<AdapterId>> rising;
    for (std::size_t c = 0; c < trials.size(); ++c) {
        for (const AdapterId id : trials.members[c]) {
            TrialLoad load = trials.loads[c];
            load.steps = steps_left[index(id)];
            if (load.steps > 0) rising[load].push_back(id);
        }
    }
    return classes_of_loads(rising);
}

TrialClasses expected_halving(const Job& job, std::span<const DatasetInfo> datasets,
                              const TrialClasses& trials, const HalvingRule& rule) {
    std::map<AdapterId, std::size_t> passed = passed_rungs(job, rule);
    std::map<TrialLoad, std::vector<AdapterId>> rising;
    for (std::size_t c = 0; c < trials.size(); ++c) {
        for (const AdapterId id : trials.members[c]) {
            TrialLoad load = trials.loads[c];
            load.rungs =
                steps_at_rungs(rule, load.steps, warmup_steps(job.adapter(id), load.steps));
            load.rungs.resize(std::min(load.rungs.size(), passed[id] + 1));
            load.steps = load.rungs.back();
            load.rungs.pop_back();
            const auto samples = std::ssize(datasets[index(job.adapter(id).dataset)].eval);
            if (rule.rung_eval_samples > 0 && samples > rule.rung_eval_samples) {
                load.rung_share =
                    static_cast<double>(rule.rung_eval_samples) / static_cast<double>(samples);
            }
            rising[load].push_back(id);
        }
    }
    return classes_of_loads(rising);
}

TrialClasses expected_trials(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets) {
    const TrialClasses trials = trial_classes(job, model, datasets);
    if (!job.sweep || job.sweep->scheduler != TrialScheduler::halving) return trials;
    const SweepJob& sweep = *job.sweep;
    return expected_halving(job, datasets, trials,
                            {sweep.rungs, sweep.reduction_factor, sweep.rung_eval_samples});
}

std::vector<std::int32_t> queue_of(std::span<const std::int32_t> counts) {
    std::vector<std::int32_t> queue;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        queue.insert(queue.end(), static_cast<std::size_t>(counts[c]),
                     static_cast<std::int32_t>(c));
    }
    return queue;
}

}  // namespace loratrain
