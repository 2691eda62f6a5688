#include "plan/schedule/plan_window.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "plan/loss_denominator.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/dispatch.h"
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
    batch.first_microbatch = batch.last_microbatch = MicrobatchId{-1};
    return batch;
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

/// What each replica evaluates.
std::vector<Round> shares_of(const Job& job, const Plan& plan, const Round& samples) {
    if (plan.replicas.size() == 1) return {samples};
    std::vector<PackRules> rules;
    for (const ReplicaView& view : views_of(plan)) rules.push_back(pack_rules(job, view, 1));
    return dispatch(rules, samples);
}

void locate_batches(Window& window) {
    for (std::size_t m = 0; m < window.microbatches.size(); ++m) {
        const MicrobatchId id{static_cast<std::int32_t>(m)};
        for (const Segment& segment : window.microbatches[m].segments) {
            BatchPlan& batch =
                *std::find_if(window.batches.begin(), window.batches.end(),
                              [&](const BatchPlan& b) { return b.adapter == segment.adapter; });
            if (!batch.is_here()) batch.first_microbatch = id;
            batch.last_microbatch = id;
        }
    }
}

}  // namespace

JointWindow plan_joint_window(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Progress& progress,
                              std::int32_t rounds) {
    return ScheduleStream(job, plan, datasets, progress).next(rounds, true, true);
}

Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds) {
    only_replica(plan);
    return plan_joint_window(job, plan, datasets, progress, rounds).common();
}

JointWindow plan_joint_eval_window(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   const std::vector<AdapterId>& adapters) {
    Window window;
    window.evaluation = true;
    Round samples;
    const std::set<AdapterId> in_order(adapters.begin(), adapters.end());
    for (const AdapterId id : in_order) {
        const std::vector<SampleInfo>& infos = datasets[index(job.adapter(id).dataset)].eval;
        if (infos.empty()) continue;
        window.batches.push_back(eval_batch(id, infos));
        samples.push_back({id, 0, {}, plan.adapters[index(id)].group_samples});
        for (std::size_t i = 0; i < infos.size(); ++i) {
            samples.back().samples.push_back(
                {static_cast<std::int32_t>(i), infos[i].tokens, infos[i].targets});
        }
    }
    window.rounds = window.batches.empty() ? 0 : 1;
    JointWindow joint;
    const std::vector<Round> shares = shares_of(job, plan, samples);
    for (std::size_t r = 0; r < shares.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        Window& of_replica = joint.replicas.emplace_back(window);
        const auto stages = static_cast<std::int64_t>(view.replica.stages.size());
        of_replica.microbatches =
            pack_items(items_of(shares[r]), view.replica.microbatch_tokens, stages);
        for (Microbatch& microbatch : of_replica.microbatches) {
            microbatch.columns = lora_columns(job, view, microbatch.segments);
        }
        locate_batches(of_replica);
        PipelineActions(view, true).add_to(of_replica, {});
    }
    const std::vector<std::string> findings = check_window(job, plan, joint);
    if (!findings.empty()) {
        throw Error("the planned evaluation is not valid:\n  " + join(findings, "\n  "));
    }
    return joint;
}

Window plan_eval_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        const std::vector<AdapterId>& adapters) {
    only_replica(plan);
    return plan_joint_eval_window(job, plan, datasets, adapters).common();
}

std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                        std::int32_t step) {
    SampleOrders orders;
    return BatchSource(job, plan, adapter, orders).samples(step);
}

}  // namespace loratrain
