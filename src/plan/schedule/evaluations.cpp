#include "plan/schedule/evaluations.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>

#include "plan/pack/sample_dispatch.h"
#include "plan/sample_counts.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

namespace {

const std::vector<SampleInfo>& eval_samples(const Job& job, std::span<const DatasetInfo> datasets,
                                            AdapterId adapter) {
    return datasets[index(job.adapter(adapter).dataset)].eval;
}

/// Groups of samples, each whole.
std::vector<PackItem> items_of(const Round& round) {
    std::vector<PackItem> items;
    for (const PendingBatch& batch : round) {
        const auto group = static_cast<std::size_t>(batch.group_samples);
        for (std::size_t i = 0; i < batch.samples.size(); ++i) {
            if (i % group == 0) items.push_back({batch.adapter, batch.step, {}});
            items.back().samples.push_back(batch.samples[i]);
        }
    }
    return items;
}

}  // namespace

bool all_are_evaluated(const Job& job, std::int32_t round) {
    const int every = job.eval.every_steps;
    return every > 0 && round % every == 0;
}

bool has_eval_samples(const Job& job, std::span<const DatasetInfo> datasets, AdapterId adapter) {
    return !eval_samples(job, datasets, adapter).empty();
}

std::vector<DatasetInfo> first_eval_samples(std::span<const DatasetInfo> datasets,
                                            std::int64_t most) {
    std::vector<DatasetInfo> infos(datasets.size());
    for (std::size_t d = 0; d < datasets.size(); ++d) {
        const std::vector<SampleInfo>& eval = datasets[d].eval;
        const std::int64_t group = infos[d].group_samples = datasets[d].group_samples;
        const std::int64_t count =
            std::min<std::int64_t>(std::ssize(eval), std::max(group, most - most % group));
        infos[d].eval.assign(eval.begin(), eval.begin() + count);
        if (datasets[d].eval_weights.empty()) continue;
        infos[d].eval_weights.assign(datasets[d].eval_weights.begin(),
                                     datasets[d].eval_weights.begin() + count);
    }
    return infos;
}

std::vector<DatasetInfo> all_samples_as_eval(std::span<const DatasetInfo> datasets) {
    std::vector<DatasetInfo> infos(datasets.size());
    for (std::size_t d = 0; d < datasets.size(); ++d) {
        infos[d].group_samples = datasets[d].group_samples;
        infos[d].eval = datasets[d].train;
        infos[d].eval.insert(infos[d].eval.end(), datasets[d].eval.begin(), datasets[d].eval.end());
        infos[d].eval_files.clear();
    }
    return infos;
}

BatchPlan evaluation_batch(const Job& job, std::span<const DatasetInfo> datasets,
                           const DueEvaluation& due) {
    const std::vector<SampleInfo>& samples = eval_samples(job, datasets, due.adapter);
    const auto& weights = datasets[index(job.adapter(due.adapter).dataset)].eval_weights;
    BatchPlan batch;
    batch.adapter = due.adapter;
    batch.step = due.step;
    batch.round = due.round;
    batch.samples = static_cast<std::int32_t>(samples.size());
    const LossJob loss = job.adapter(due.adapter).loss.evaluated();
    FileDenominators files(datasets[index(job.adapter(due.adapter).dataset)].eval_files);
    for (std::size_t s = 0; s < samples.size(); ++s) {
        const bool chosen = is_chosen(loss, static_cast<std::int64_t>(s));
        batch.tokens += samples[s].tokens;
        batch.targets += samples[s].targets;
        const auto place = static_cast<std::int64_t>(s);
        const double weight = target_weight(weights, place, samples[s].targets);
        batch.target_weight += weight;
        files.add(place, weight);
        if (chosen) batch.chosen_targets += samples[s].targets;
    }
    batch.denominator = loss_denominator(loss, batch);
    batch.file_denominators = files.of(loss);
    batch.first_microbatch = batch.last_microbatch = MicrobatchId{-1};
    batch.evaluation = true;
    return batch;
}

PendingBatch evaluation_samples(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const DueEvaluation& due) {
    PendingBatch pending{
        due.adapter, due.step, {}, plan.adapters[index(due.adapter)].group_samples};
    for (const SampleInfo& info : eval_samples(job, datasets, due.adapter)) {
        const auto place = static_cast<std::int32_t>(pending.samples.size());
        pending.samples.push_back({place, info.tokens, info.targets, info.undesirable});
    }
    return pending;
}

std::vector<Microbatch> evaluation_microbatches(const Round& samples, std::int64_t capacity,
                                                std::int64_t at_least) {
    std::vector<Microbatch> microbatches = pack_items(items_of(samples), capacity, at_least);
    for (Microbatch& microbatch : microbatches) microbatch.evaluation = true;
    return microbatches;
}

void append_microbatches(const Job& job, const ReplicaView& view, std::size_t first_batch,
                         std::vector<Microbatch> microbatches, Window& window) {
    std::map<std::tuple<AdapterId, std::int32_t, bool>, BatchPlan*> batch_of;
    for (std::size_t b = first_batch; b < window.batches.size(); ++b) {
        BatchPlan& batch = window.batches[b];
        batch_of[{batch.adapter, batch.step, batch.evaluation}] = &batch;
    }
    for (Microbatch& microbatch : microbatches) {
        const MicrobatchId id{window.first_microbatch +
                              static_cast<std::int32_t>(window.microbatches.size())};
        for (const Segment& segment : microbatch.segments) {
            BatchPlan& batch = *batch_of.at({segment.adapter, segment.step, microbatch.evaluation});
            if (!batch.is_here()) batch.first_microbatch = id;
            batch.last_microbatch = id;
            if (!batch.evaluation) batch.padding += segment.tokens();
        }
        microbatch.columns = lora_columns(job, view, microbatch.segments);
        window.microbatches.push_back(std::move(microbatch));
    }
}

namespace {

using BinOf = std::vector<std::size_t>;  ///< of each item

/// Microbatches that first-fit in order needs.
std::size_t first_fit_count(std::span<const PackItem> items, std::int64_t capacity) {
    std::vector<std::int64_t> room;
    for (const PackItem& item : items) {
        const std::int64_t tokens = item.tokens();
        const auto found = std::find_if(room.begin(), room.end(),
                                        [&](std::int64_t left) { return left >= tokens; });
        if (found == room.end()) {
            room.push_back(capacity - tokens);
        } else {
            *found -= tokens;
        }
    }
    return room.size();
}

std::vector<std::size_t> longest_items_first(std::span<const PackItem> items) {
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return items[a].tokens() > items[b].tokens();
    });
    return order;
}

/// None when a bin would exceed the capacity.
std::optional<BinOf> balance(std::span<const PackItem> items, std::int64_t capacity,
                             std::size_t bins) {
    using Load = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest;
    for (std::size_t bin = 0; bin < bins; ++bin) lightest.emplace(0, bin);
    BinOf bin_of(items.size());
    for (const std::size_t item : longest_items_first(items)) {
        const auto [load, bin] = lightest.top();
        lightest.pop();
        const std::int64_t tokens = load + items[item].tokens();
        if (tokens > capacity) return std::nullopt;
        bin_of[item] = bin;
        lightest.emplace(tokens, bin);
    }
    return bin_of;
}

std::vector<Microbatch> build(std::span<const PackItem> items, const BinOf& bin_of) {
    std::vector<std::size_t> position(items.size(), items.size());
    std::vector<Microbatch> microbatches;
    for (std::size_t i = 0; i < items.size(); ++i) {
        std::size_t& at = position[bin_of[i]];
        if (at == items.size()) {
            at = microbatches.size();
            microbatches.emplace_back();
        }
        std::vector<Segment>& segments = microbatches[at].segments;
        if (segments.empty() || segments.back().adapter != items[i].adapter) {
            segments.push_back({items[i].adapter, items[i].step, {}});
        }
        std::vector<SampleRef>& samples = segments.back().samples;
        samples.insert(samples.end(), items[i].samples.begin(), items[i].samples.end());
    }
    return microbatches;
}

}  // namespace

std::int64_t PackItem::tokens() const {
    return std::accumulate(
        samples.begin(), samples.end(), std::int64_t{0},
        [](std::int64_t sum, const SampleRef& sample) { return sum + sample.tokens; });
}

std::vector<Microbatch> pack_items(std::span<const PackItem> items, std::int64_t capacity,
                                   std::int64_t at_least) {
    if (items.empty()) return {};
    const std::size_t wanted = std::min(items.size(), static_cast<std::size_t>(at_least));
    std::size_t bins = std::max(wanted, first_fit_count(items, capacity));
    while (bins < items.size()) {
        if (const std::optional<BinOf> bin_of = balance(items, capacity, bins)) {
            return build(items, *bin_of);
        }
        bins += 1 + bins / 64;
    }
    BinOf alone(items.size());
    std::iota(alone.begin(), alone.end(), 0);
    return build(items, alone);
}

StreamEvaluations::StreamEvaluations(const Stream& stream)
    : stream_(stream), views_(views_of(stream.plan)) {}

bool StreamEvaluations::evaluates(AdapterId adapter) const {
    return has_eval_samples(stream_.job, stream_.datasets, adapter);
}

void StreamEvaluations::add_coming(AdapterId adapter) {
    if (evaluates(adapter)) coming_.push_back(adapter);
}

void StreamEvaluations::add_going(AdapterId adapter) {
    if (evaluates(adapter)) going_.push_back(adapter);
}

void StreamEvaluations::begin_window(JointWindow& joint) {
    at_rungs_.clear();
    evaluate_all(coming_, joint);
}

void StreamEvaluations::evaluate_going(JointWindow& joint) {
    evaluate_all(going_, joint);
}

void StreamEvaluations::evaluate_behind_block(std::size_t first_batch, JointWindow& joint) {
    at_rungs_ = coming_to_rungs(first_batch, joint.common());
    evaluate_at_rungs(joint);
    for (const DueEvaluation& due : due_behind(first_batch, joint)) evaluate(due, joint);
}

std::vector<std::int32_t> StreamEvaluations::end_window(const JointWindow& joint) {
    std::vector<std::int32_t> forwards;
    for (const Window& window : joint.replicas) forwards.push_back(awaited_forwards(window));
    awaited_.clear();
    return forwards;
}

std::int32_t StreamEvaluations::awaited_forwards(const Window& window) const {
    std::int32_t forwards = 0;
    for (const BatchPlan& batch : window.batches) {
        const bool at_end = batch.evaluation && batch.round + 1 == stream_.progress.round;
        const auto is_in = [&](const std::vector<AdapterId>& adapters) {
            return std::find(adapters.begin(), adapters.end(), batch.adapter) != adapters.end();
        };
        if (!at_end || !batch.is_here() || !(is_in(awaited_) || is_in(at_rungs_))) continue;
        forwards = std::max(forwards, number(batch.last_microbatch) + 1);
    }
    return forwards;
}

/// With the block of the batches from `first_batch` on.
std::vector<AdapterId> StreamEvaluations::coming_to_rungs(std::size_t first_batch,
                                                          const Window& window) const {
    std::vector<AdapterId> adapters;
    if (stream_.progress.rungs.empty() || all_are_evaluated(stream_.job, stream_.progress.round))
        return adapters;
    for (std::size_t b = first_batch; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        const bool is_last = batch.round + 1 == stream_.progress.round;
        const bool at_rung = batch.step + 1 == stream_.progress.rungs[index(batch.adapter)];
        if (is_last && at_rung && evaluates(batch.adapter)) adapters.push_back(batch.adapter);
    }
    return adapters;
}

/// As an evaluation of them with an empty pipeline.
void StreamEvaluations::evaluate_at_rungs(JointWindow& joint) const {
    if (at_rungs_.empty()) return;
    std::vector<DatasetInfo> first;
    std::span<const DatasetInfo> infos = stream_.datasets;
    if (const std::int64_t most = stream_.job.sweep->rung_eval_samples; most > 0) {
        first = first_eval_samples(stream_.datasets, most);
        infos = first;
    }
    std::vector<DueEvaluation> together;
    for (const AdapterId adapter : at_rungs_) {
        together.push_back(
            {adapter, stream_.progress.steps[index(adapter)], stream_.progress.round - 1});
    }
    append(together, infos, true, joint);
}

/// What is to be evaluated behind a block of the batches from `first_batch` on: those first that
/// end first.
std::vector<DueEvaluation> StreamEvaluations::due_behind(std::size_t first_batch,
                                                         const JointWindow& joint) const {
    const Window& window = joint.common();
    const bool all = all_are_evaluated(stream_.job, stream_.progress.round);
    std::vector<std::pair<std::int64_t, DueEvaluation>> due;
    for (std::size_t b = first_batch; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        if (batch.round + 1 != stream_.progress.round || !(all || batch.last_of_adapter)) continue;
        if (!evaluates(batch.adapter)) continue;
        const auto number_of_batch = window.first_batch + static_cast<std::int32_t>(b);
        const auto place =
            std::find(joint.reductions.begin(), joint.reductions.end(), number_of_batch);
        const bool alone = views_.size() == 1;
        due.push_back({alone ? number(batch.last_microbatch) : place - joint.reductions.begin(),
                       {batch.adapter, batch.step + 1, batch.round}});
    }
    std::stable_sort(due.begin(), due.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    std::vector<DueEvaluation> evaluations_in_order;
    evaluations_in_order.reserve(due.size());
    for (const auto& [end, one] : due) evaluations_in_order.push_back(one);
    return evaluations_in_order;
}

void StreamEvaluations::evaluate(const DueEvaluation& due, JointWindow& joint) const {
    append({&due, 1}, stream_.datasets, false, joint);
}

/// Packed together, with the eval samples of `infos`; where that is wanted, one microbatch at least
/// for each stage.
void StreamEvaluations::append(std::span<const DueEvaluation> together,
                               std::span<const DatasetInfo> infos, bool for_all_stages,
                               JointWindow& joint) const {
    const std::size_t first_batch = joint.common().batches.size();
    Round samples;
    for (const DueEvaluation& due : together) {
        samples.push_back(evaluation_samples(stream_.job, stream_.plan, infos, due));
        for (Window& window : joint.replicas) {
            window.batches.push_back(evaluation_batch(stream_.job, infos, due));
        }
    }
    const std::vector<Round> shares = views_.size() == 1 ? std::vector<Round>{samples}
                                                         : dispatch(stream_.dispatch_rules, samples,
                                                                    stream_.job.parallel.dispatch);
    for (std::size_t r = 0; r < views_.size(); ++r) {
        const ReplicaView& view = views_[r];
        const auto stages = static_cast<std::int64_t>(view.replica.stages.size());
        append_microbatches(stream_.job, view, first_batch,
                            evaluation_microbatches(shares[r], view.replica.microbatch_tokens,
                                                    for_all_stages ? stages : 1),
                            joint.replicas[r]);
    }
}

/// Of those that come and go, in a window that has rounds.
void StreamEvaluations::evaluate_all(std::vector<AdapterId>& adapters, JointWindow& joint) const {
    for (const AdapterId adapter : std::exchange(adapters, {})) {
        evaluate({adapter, stream_.progress.steps[index(adapter)], joint.common().first_round},
                 joint);
    }
}

}  // namespace loratrain
