#include "plan/schedule/evaluations.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "plan/loss_denominator.h"
#include "plan/pack/pack_microbatches.h"
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
    const LossJob& loss = job.adapter(due.adapter).loss;
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

}  // namespace loratrain
