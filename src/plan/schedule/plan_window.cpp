#include "plan/schedule/plan_window.h"

#include <set>

#include "base/error.h"
#include "plan/pack/sample_dispatch.h"
#include "plan/replica_view.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/pipeline_actions.h"
#include "plan/schedule/schedule_stream.h"

namespace loratrain {

namespace {

/// What each replica evaluates.
std::vector<Round> shares_of(const Job& job, const Plan& plan, const Round& samples) {
    if (plan.replicas.size() == 1) return {samples};
    std::vector<PackRules> rules;
    for (const ReplicaView& view : views_of(plan)) rules.push_back(dispatch_rules_of(job, view));
    return dispatch(rules, samples, job.parallel.dispatch);
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
    Round samples;
    for (const AdapterId id : std::set<AdapterId>(adapters.begin(), adapters.end())) {
        if (!has_eval_samples(job, datasets, id)) continue;
        window.batches.push_back(evaluation_batch(job, datasets, {id}));
        samples.push_back(evaluation_samples(job, plan, datasets, {id}));
    }
    window.rounds = window.batches.empty() ? 0 : 1;
    JointWindow joint;
    const std::vector<Round> shares = shares_of(job, plan, samples);
    for (std::size_t r = 0; r < shares.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        Window& of_replica = joint.replicas.emplace_back(window);
        const auto stages = static_cast<std::int64_t>(view.replica.stages.size());
        append_microbatches(
            job, view, 0,
            evaluation_microbatches(shares[r], view.replica.microbatch_tokens, stages), of_replica);
        PipelineActions(view).add_to(of_replica, {});
    }
    const std::vector<std::string> findings = check_window(job, plan, joint);
    if (!findings.empty()) {
        throw Error("the planned evaluation is not valid:\n  " + join(findings, "\n  "));
    }
    return joint;
}

}  // namespace loratrain
