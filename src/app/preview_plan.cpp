#include "app/preview_plan.h"

#include <utility>

#include "base/system.h"
#include "measure/measured_costs.h"
#include "measure/profile_tasks.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/usual_way.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

void predict_workers(const Job& job, const std::vector<DatasetInfo>& infos,
                     PlannedPreview& preview) {
    const Plan& plan = preview.plan();
    std::vector<std::int32_t> steps;
    for (const AdapterPlan& adapter : plan.adapters) steps.push_back(adapter.total_steps);
    preview.queues =
        queue_for_workers(job, plan, infos, steps, preview.workers.replica.count, preview.prepared);
    preview.seconds = workers_seconds(job, plan, infos, preview.queues, preview.prepared);
}

}  // namespace

PlannedPreview planned_preview(const CommandLine& command_line, const MpiSession& mpi, Job job,
                               const JobInputs& inputs, Cluster cluster) {
    PlannedPreview result;
    const double start = processor_seconds();
    const ModelSpec model = planned_model(job, *inputs.weights);
    std::optional<PlannedJob> planned;
    std::optional<Prediction> predicted;  // of `planned`
    if (job.parallel.deployment_open) {
        UsualWay way = usual_way(job, model, inputs.infos, cluster);
        planned = std::move(way.planned);
        predicted = std::move(way.prediction);
        job = settled(std::move(job), way);
        if (!job.parallel.by_workers()) result.found = std::move(way.found);
    }
    if (job.parallel.by_workers()) {
        result.workers = shape_of_workers(job, model, inputs.infos, cluster);
        cluster.ranks = result.workers.replica.tensor * result.workers.replica.stages;
        job = job_of_worker(std::move(job), result.workers);
    }
    auto found = settle_deployment(job, model, inputs.infos, cluster, nullptr);
    if (found) {
        planned = found->fastest.front().planned;
        predicted = found->fastest.front().prediction;
        result.found = std::move(found);
    }
    const bool is_known = planned && !cluster.costs;
    if (!is_known) predicted.reset();
    result.planned = is_known ? std::move(*planned) : plan_job(job, model, inputs.infos, cluster);
    if (command_line.device.empty()) {
        const MeasuredCosts kept = kept_costs(mpi, job, result.plan(), cluster.ranks_per_node);
        if (kept.known()) predicted.reset();
        if (kept.known() && !has_built_in_costs(result.plan())) {
            cluster.costs = kept.of_first();
            result.planned =
                plan_again(result.planned, *cluster.costs, job, inputs.infos, cluster, nullptr);
        }
        kept.write_to(result.planned.plan);
        result.costs_from = kept.from;
        result.observed = kept.observed;
    }
    const double planned_at = processor_seconds();
    result.prepared = prepared_shapes(job, result.plan(), inputs.infos);
    result.prediction =
        predicted ? std::move(*predicted)
                  : predict(job, result.plan(), inputs.infos, rounds_predicted, result.prepared);
    result.seconds = result.prediction.seconds;
    if (job.parallel.by_workers()) predict_workers(job, inputs.infos, result);
    result.planned_in = planned_at - start;
    result.predicted_in = processor_seconds() - planned_at;
    result.job = std::move(job);
    result.cluster = std::move(cluster);
    return result;
}

}  // namespace loratrain
