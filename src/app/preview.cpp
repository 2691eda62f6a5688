#include "app/preview.h"

#include <filesystem>
#include <optional>

#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "measure/measured_costs.h"
#include "measure/profile_tasks.h"
#include "plan/deploy/make_plan.h"
#include "plan/predict/compare_deployments.h"
#include "plan/predict/predict.h"
#include "plan/replica_view.h"
#include "plan/sweep/worker_queues.h"
#include "plan/text/describe.h"
#include "plan/text/describe_prediction.h"
#include "plan/text/describe_sweep.h"
#include "report/run_record.h"
#include "report/sweep_svg.h"
#include "session/cluster.h"
#include "session/job_inputs.h"
#include "session/run_preview.h"
#include "session/worker_group.h"
#include "train/job_warnings.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr std::int32_t rounds_played = 16;
constexpr const char* dry_run_name = "dry_run";
constexpr const char* sweep_picture_name = "sweep.svg";

Cluster wanted_cluster(const CommandLine& command_line, const MpiSession& mpi, const Job& job) {
    const ImaginedRanks ranks{command_line.ranks.value_or(mpi.size()), command_line.ranks_per_node};
    if (!command_line.device.empty()) return imagined_cluster(command_line.device, ranks, mpi);
    return with_ranks(describe_cluster(mpi, job.run.backend), ranks);
}

std::string output_directory(const CommandLine& command_line, const Job& job) {
    if (!command_line.output.empty()) return command_line.output;
    return command_line.device.empty() ? "" : cat(job.run.dir, "/", dry_run_name);
}

/// What workers are predicted to take of what each is to train.
void tell_workers(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& infos,
                  const ReplicaJob& replica, const MetShapes& prepared) {
    std::vector<std::int32_t> steps;
    for (const AdapterPlan& adapter : plan.adapters) steps.push_back(adapter.total_steps);
    const WorkerQueues queues = queue_for_workers(job, plan, infos, steps, replica.count, prepared);
    std::string text = cat("workers     ", replica.count, " of tp ", replica.tensor, " x pp ",
                           replica.stages, ", predicted ", human_duration(queues.seconds),
                           " of training; what is above is of one of them\n");
    for (std::size_t w = 0; w < queues.queues.size(); ++w) {
        text += cat("  worker ", w, ": ", queues.queues[w].size(), " adapters\n");
    }
    log::block(text);
}

/// A report would show what is simulated here as that of the run.
void check_is_no_place_of_a_run(const std::string& dir) {
    const fs::path folder = (fs::absolute(dir) / "").lexically_normal().parent_path();
    const bool preview = folder.filename() == preview_name;
    if (is_run_directory(folder) || (preview && is_run_directory(folder.parent_path()))) {
        throw InputError("--out", dir + " is where a run keeps its timeline",
                         "choose another directory");
    }
}

/// Tells how trials would be shared among replicas that take no part in each other's rounds, beside
/// other ways. `dir`: of the picture; "" = none.
void preview_sweep(const Job& job, const ModelSpec& model, const std::vector<DatasetInfo>& infos,
                   const Cluster& cluster, const std::string& dir) {
    TrialClasses trials = trial_classes(job, model, infos);
    const SweepJob& sweep = *job.sweep;
    if (sweep.scheduler == TrialScheduler::halving) {
        trials = expected_halving(job, infos, trials,
                                  {sweep.rungs, sweep.reduction_factor, sweep.rung_eval_samples});
    }
    const SweepComparison comparison = compare_sweep({job, model, infos, cluster, trials});
    log::block(describe(comparison));
    if (dir.empty()) return;
    make_directory(dir);
    const std::string path = cat(dir, "/", sweep_picture_name);
    write_text_atomic(path, sweep_svg(job, comparison.deployment));
    log::info("wrote " + path);
}

void tell_deployments(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets,
                      const Cluster& cluster, const FoundDeployments& found,
                      const Prediction& own) {
    const std::string others =
        describe(compare_deployments(job, plan, datasets, cluster, found, own));
    if (!others.empty()) log::block(others);
    if (found.fastest.empty()) return;
    log::block(describe(compare_baselines(job, plan.model, datasets, cluster, found)));
}

void plan_and_predict(const CommandLine& command_line, const MpiSession& mpi, Job job,
                      Cluster cluster) {
    const std::string dir = output_directory(command_line, job);
    if (!dir.empty()) check_is_no_place_of_a_run(dir);
    const JobInputs inputs = open_job_inputs(job);
    const Cluster all_ranks = cluster;
    WorkerShape workers;
    if (job.parallel.by_workers()) {
        workers = shape_of_workers(job, cluster);
        cluster.ranks = workers.replica.tensor * workers.replica.stages;
        job = job_of_worker(std::move(job), workers);
    }
    const double start = processor_seconds();
    const ModelSpec model = inputs.weights->spec();
    std::optional<FoundDeployments> found =
        settle_deployment(job, model, inputs.infos, cluster, nullptr);
    PlannedJob planned = plan_job(job, model, inputs.infos, cluster);
    if (command_line.device.empty()) {
        const MeasuredCosts kept = kept_costs(mpi, job, planned.plan, cluster.ranks_per_node);
        if (kept.known() && !has_built_in_costs(planned.plan)) {
            cluster.costs = kept.of_first();
            planned = plan_again(planned, *cluster.costs, job, inputs.infos, cluster, nullptr);
        }
        kept.tell(planned.plan);
    }
    const Plan& plan = planned.plan;
    const double planned_at = processor_seconds();
    const MetShapes prepared = prepared_shapes(job, plan, inputs.infos);
    const Prediction prediction = predict(job, plan, inputs.infos, rounds_played, prepared);
    const double predicted_at = processor_seconds();
    for (const std::string& text :
         job_warnings(job, plan, inputs.files, BaseFacts::of(*inputs.weights))) {
        log::warn(text);
    }
    log::block("datasets\n" + describe_datasets(job, inputs.files));
    log::block(describe(job, plan, planned.report, inputs.infos));
    log::block(describe(plan, prediction) + describe_links(plan, cluster));
    log::block(cat("planned in  ", format_fixed(planned_at - start, 2), " s, predicted in ",
                   format_fixed(predicted_at - planned_at, 2), " s of processor time\n"));
    log::block(
        describe(compare_policies(job, model, inputs.infos, cluster, rounds_played, prediction),
                 job.schedule.policy));
    if (cluster.ranks > 1) {
        if (!found) found = find_deployments(job, model, inputs.infos, cluster);
        const std::vector<IdleRemedy> remedies =
            idle_remedies(job, plan, inputs.infos, cluster, rounds_played, prediction, *found);
        if (!remedies.empty()) log::block(describe(prediction, cluster.ranks, remedies));
        tell_deployments(job, plan, inputs.infos, cluster, *found, prediction);
    }
    if (job.parallel.by_workers()) tell_workers(job, plan, inputs.infos, workers.replica, prepared);
    if (job.sweep) preview_sweep(job, model, inputs.infos, all_ranks, dir);
    log::block(cat("compared and advised in ", format_fixed(processor_seconds() - predicted_at, 2),
                   " s of processor time\n"));
    if (dir.empty()) return;
    write_pictures(dir, job, plan, prediction.start);
    log::info(cat("wrote ", dir, "/timeline.svg and ", dir, "/", trace_file_name));
}

}  // namespace

ExitCode preview(const CommandLine& command_line, const MpiSession& mpi, const Job& job) {
    const Cluster cluster = wanted_cluster(command_line, mpi, job);
    agree(mpi, [&] {
        if (mpi.is_root()) plan_and_predict(command_line, mpi, job, cluster);
    });
    return ExitCode::done;
}

}  // namespace loratrain
