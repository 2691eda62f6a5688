#include "app/preview.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "measure/measured_costs.h"
#include "measure/profile_tasks.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/compare_deployments.h"
#include "plan/deployments/usual_way.h"
#include "plan/place.h"
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

/// One for each number of --ranks, or of the ranks at hand. Collective.
std::vector<Cluster> wanted_clusters(const CommandLine& command_line, const MpiSession& mpi,
                                     const Job& job) {
    std::vector<int> counts = command_line.ranks;
    if (counts.empty()) counts.push_back(mpi.size());
    std::optional<Cluster> here;
    if (command_line.device.empty()) here = describe_cluster(mpi, job.run.backend);
    std::vector<Cluster> clusters;
    for (const int count : counts) {
        const ImaginedRanks ranks{count, command_line.ranks_per_node};
        clusters.push_back(here ? with_ranks(*here, ranks)
                                : imagined_cluster(command_line.device, ranks, mpi));
    }
    return clusters;
}

std::string output_directory(const CommandLine& command_line, const Job& job) {
    if (!command_line.output.empty()) return command_line.output;
    return command_line.device.empty() ? "" : cat(job.run.dir, "/", dry_run_name);
}

/// A job as it is planned for a cluster, or for one of its workers, and what it is predicted to
/// take.
struct PlannedPreview {
    Job job;
    Cluster cluster;
    WorkerShape workers;
    std::optional<FoundDeployments> found;
    PlannedJob planned;
    MetShapes prepared;
    Prediction prediction;
    double planned_in = 0.0;  ///< processor seconds
    double predicted_in = 0.0;

    const Plan& plan() const { return planned.plan; }
};

/// Also says by which kept costs it is planned.
PlannedPreview planned_preview(const CommandLine& command_line, const MpiSession& mpi, Job job,
                               const JobInputs& inputs, Cluster cluster) {
    PlannedPreview result;
    const double start = processor_seconds();
    const ModelSpec model = inputs.weights->spec();
    std::optional<PlannedJob> planned;
    if (job.parallel.deployment_open) {
        UsualWay way = usual_way(job, model, inputs.infos, cluster);
        planned = std::move(way.planned);
        job = settled(std::move(job), way);
        if (!job.parallel.by_workers()) result.found = std::move(way.found);
    }
    if (job.parallel.by_workers()) {
        result.workers = shape_of_workers(job, cluster);
        cluster.ranks = result.workers.replica.tensor * result.workers.replica.stages;
        job = job_of_worker(std::move(job), result.workers);
    }
    auto found = settle_deployment(job, model, inputs.infos, cluster, nullptr);
    if (found) {
        planned = found->fastest.front().planned;
        result.found = std::move(found);
    }
    const bool is_known = planned && !cluster.costs;
    result.planned = is_known ? std::move(*planned) : plan_job(job, model, inputs.infos, cluster);
    if (command_line.device.empty()) {
        const MeasuredCosts kept = kept_costs(mpi, job, result.plan(), cluster.ranks_per_node);
        if (kept.known() && !has_built_in_costs(result.plan())) {
            cluster.costs = kept.of_first();
            result.planned =
                plan_again(result.planned, *cluster.costs, job, inputs.infos, cluster, nullptr);
        }
        kept.write_to(result.planned.plan);
    }
    const double planned_at = processor_seconds();
    result.prepared = prepared_shapes(job, result.plan(), inputs.infos);
    result.prediction = predict(job, result.plan(), inputs.infos, rounds_played, result.prepared);
    result.planned_in = planned_at - start;
    result.predicted_in = processor_seconds() - planned_at;
    result.job = std::move(job);
    result.cluster = std::move(cluster);
    return result;
}

/// Of what each worker is to train.
WorkerQueues queues_of(const PlannedPreview& preview, const std::vector<DatasetInfo>& infos) {
    std::vector<std::int32_t> steps;
    for (const AdapterPlan& adapter : preview.plan().adapters) {
        steps.push_back(adapter.total_steps);
    }
    return queue_for_workers(preview.job, preview.plan(), infos, steps,
                             preview.workers.replica.count, preview.prepared);
}

/// What workers are predicted to take of what each is to train.
void print_workers(const PlannedPreview& preview, const std::vector<DatasetInfo>& infos) {
    const ReplicaJob& replica = preview.workers.replica;
    const WorkerQueues queues = queues_of(preview, infos);
    std::string text = cat("workers     ", replica.count, " of tp ", replica.tensor, " x pp ",
                           replica.stages, ", predicted ", human_duration(queues.seconds),
                           " of training; what is above is of one of them\n");
    const bool packed = !queues.packed_jobs.empty();
    const auto& parts = packed ? queues.packed_jobs : queues.queues;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        text +=
            cat(packed ? "  packed job " : "  worker ", i, ": ", parts[i].size(), " adapters\n");
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
void compare_sweep_with_others(const Job& job, const ModelSpec& model,
                               const std::vector<DatasetInfo>& infos, const Cluster& cluster,
                               const std::string& dir) {
    const TrialClasses trials = expected_trials(job, model, infos);
    const SweepComparison comparison = compare_sweep({job, model, infos, cluster, trials});
    log::block(describe(comparison));
    if (dir.empty()) return;
    make_directory(dir);
    const std::string path = cat(dir, "/", sweep_picture_name);
    write_text_atomic(path, sweep_svg(job, comparison.deployment));
    log::info("wrote " + path);
}

void print_deployments(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets,
                       const Cluster& cluster, const FoundDeployments& found,
                       const Prediction& own) {
    const std::string others =
        describe(compare_deployments(job, plan, datasets, cluster, found, own));
    if (!others.empty()) log::block(others);
    if (found.fastest.empty()) return;
    log::block(describe(compare_baselines(job, plan.model, datasets, cluster, found)));
}

/// What other policies, deployments and ways to train would take, and what leaves ranks less idle.
/// `found`: where the job's own deployment was searched; what was ruled out is of interest here.
void compare_with_others(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& infos,
                         const Cluster& cluster, const Prediction& own,
                         std::optional<FoundDeployments> found) {
    log::block(describe(compare_policies(job, plan.model, infos, cluster, rounds_played, own),
                        job.schedule.policy));
    if (cluster.ranks == 1) return;
    if (!found || found->ruled_out > 0) found = find_deployments(job, plan.model, infos, cluster);
    const std::vector<IdleRemedy> remedies =
        idle_remedies(job, plan, infos, cluster, rounds_played, own, *found);
    if (!remedies.empty()) log::block(describe(own, cluster.ranks, remedies));
    print_deployments(job, plan, infos, cluster, *found, own);
}

void warn_of_lanes_over_hosts(const Plan& plan, const Cluster& cluster) {
    std::vector<std::string> names;
    for (const std::int32_t host : hosts_of(cluster)) names.push_back(std::to_string(host));
    for (const std::string& text : stages_over_hosts(plan, names)) log::warn(text);
}

void print_preview(const PlannedPreview& preview, const JobInputs& inputs) {
    const Plan& plan = preview.plan();
    for (const std::string& text :
         job_warnings(preview.job, plan, inputs.files, BaseFacts::of(*inputs.weights))) {
        log::warn(text);
    }
    warn_of_lanes_over_hosts(plan, preview.cluster);
    log::block("datasets\n" + describe_datasets(preview.job, inputs.files));
    log::block(describe(preview.job, plan, preview.planned.report, inputs.infos));
    log::block(describe(plan, preview.prediction) +
               describe_links(preview.job, plan, preview.cluster));
    log::block(cat("planned in  ", format_fixed(preview.planned_in, 2), " s, predicted in ",
                   format_fixed(preview.predicted_in, 2), " s of processor time\n"));
    if (preview.job.parallel.by_workers()) print_workers(preview, inputs.infos);
}

void plan_and_predict(const CommandLine& command_line, const MpiSession& mpi, const Job& job,
                      const Cluster& cluster) {
    const std::string dir = output_directory(command_line, job);
    if (!dir.empty()) check_is_no_place_of_a_run(dir);
    const JobInputs inputs = open_job_inputs(job);
    PlannedPreview preview = planned_preview(command_line, mpi, job, inputs, cluster);
    print_preview(preview, inputs);
    if (command_line.compare) {
        const double start = processor_seconds();
        compare_with_others(preview.job, preview.plan(), inputs.infos, preview.cluster,
                            preview.prediction, std::move(preview.found));
        if (job.sweep) {
            compare_sweep_with_others(preview.job, preview.plan().model, inputs.infos, cluster,
                                      dir);
        }
        log::block(cat("compared in ", format_fixed(processor_seconds() - start, 2),
                       " s of processor time\n"));
    } else {
        log::block(
            "other ways  --compare predicts other policies, deployments and ways to train\n");
    }
    if (dir.empty()) return;
    write_pictures(dir, preview.job, preview.plan(), preview.prediction.start);
    log::info(cat("wrote ", dir, "/timeline.svg and ", dir, "/", trace_file_name));
}

/// What the job would take on so many ranks, or why it cannot be done there.
RankChoice rank_choice(const CommandLine& command_line, const MpiSession& mpi, const Job& job,
                       const JobInputs& inputs, const Cluster& cluster) {
    RankChoice choice{cluster.ranks, {}, 0.0, 0, {}};
    try {
        const PlannedPreview preview = planned_preview(command_line, mpi, job, inputs, cluster);
        const bool workers = preview.job.parallel.by_workers();
        choice.deployment =
            workers ? std::vector{preview.workers.replica} : deployment_of(preview.plan(), 0);
        choice.seconds =
            workers ? queues_of(preview, inputs.infos).seconds : preview.prediction.seconds;
        choice.tokens = preview.prediction.tokens;
    } catch (const InputError& error) {
        choice.obstacle = error.problems().front().what;
    }
    return choice;
}

void print_rank_choices(const CommandLine& command_line, const MpiSession& mpi, const Job& job,
                        const std::vector<Cluster>& clusters) {
    const JobInputs inputs = open_job_inputs(job);
    log::block("datasets\n" + describe_datasets(job, inputs.files));
    std::vector<RankChoice> choices;
    for (const Cluster& cluster : clusters) {
        choices.push_back(rank_choice(command_line, mpi, job, inputs, cluster));
    }
    log::block(describe(choices));
}

}  // namespace

ExitCode preview(const CommandLine& command_line, const MpiSession& mpi, const Job& job) {
    const std::vector<Cluster> clusters = wanted_clusters(command_line, mpi, job);
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        if (clusters.size() > 1) return print_rank_choices(command_line, mpi, job, clusters);
        plan_and_predict(command_line, mpi, job, clusters.front());
    });
    return ExitCode::done;
}

}  // namespace loratrain
