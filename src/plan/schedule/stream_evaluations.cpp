#include "plan/schedule/stream_evaluations.h"

#include <algorithm>
#include <utility>

#include "plan/pack/dispatch.h"

namespace loratrain {

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
