#include "plan/schedule/plan_window.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "plan/loss_denominator.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/pack_microbatches.h"
#include "plan/replica_view.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/lora_columns.h"
#include "plan/schedule/pipeline_actions.h"
#include "plan/schedule/schedule_stream.h"

namespace loratrain {

namespace {

BatchPlan eval_batch(AdapterId adapter, const std::vector<SampleInfo>& samples) {
    BatchPlan batch;
    batch.adapter = adapter;
    batch.samples = static_cast<std::int32_t>(samples.size());
    for (const SampleInfo& info : samples) {
        batch.tokens += info.tokens;
        batch.targets += info.targets;
    }
    batch.denominator = loss_denominator(batch);
    batch.first_microbatch = MicrobatchId{-1};
    return batch;
}

void locate_batches(Window& window) {
    for (std::size_t m = 0; m < window.microbatches.size(); ++m) {
        const MicrobatchId id{static_cast<std::int32_t>(m)};
        for (const Segment& segment : window.microbatches[m].segments) {
            BatchPlan& batch =
                *std::find_if(window.batches.begin(), window.batches.end(),
                              [&](const BatchPlan& b) { return b.adapter == segment.adapter; });
            if (number(batch.first_microbatch) < 0) batch.first_microbatch = id;
            batch.last_microbatch = id;
        }
    }
}

}  // namespace

Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds) {
    return ScheduleStream(job, plan, datasets, progress).next(rounds, true, true);
}

Window plan_eval_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        const std::vector<AdapterId>& adapters) {
    Window window;
    window.evaluation = true;
    std::vector<PackItem> items;
    const std::set<AdapterId> in_order(adapters.begin(), adapters.end());
    for (const AdapterId id : in_order) {
        const std::vector<SampleInfo>& samples = datasets[index(job.adapter(id).dataset)].eval;
        if (samples.empty()) continue;
        window.batches.push_back(eval_batch(id, samples));
        const auto group = static_cast<std::size_t>(plan.adapters[index(id)].group_samples);
        for (std::size_t i = 0; i < samples.size(); ++i) {
            if (i % group == 0) items.push_back({id, 0, {}});
            items.back().samples.push_back(
                {static_cast<std::int32_t>(i), samples[i].tokens, samples[i].targets});
        }
    }
    const ReplicaView view = only_replica(plan);
    const auto stages = static_cast<std::int64_t>(view.replica.stages.size());
    window.microbatches = pack_items(items, view.replica.microbatch_tokens, stages);
    for (Microbatch& microbatch : window.microbatches) {
        microbatch.columns = lora_columns(job, view, microbatch.segments);
    }
    window.rounds = window.batches.empty() ? 0 : 1;
    locate_batches(window);
    PipelineActions(view, true).add_to(window);
    const std::vector<std::string> findings = check_window(job, view, window);
    if (!findings.empty()) {
        throw Error("the planned evaluation is not valid:\n  " + join(findings, "\n  "));
    }
    return window;
}

std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                        std::int32_t step) {
    SampleOrders orders;
    return BatchSource(job, plan, adapter, orders).samples(step);
}

}  // namespace loratrain
