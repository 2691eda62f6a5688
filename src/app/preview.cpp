#include "app/preview.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "app/preview_change.h"
#include "app/preview_plan.h"
#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/replica_options.h"
#include "plan/deployments/compare_deployments.h"
#include "plan/place.h"
#include "plan/predict/text_seconds.h"
#include "plan/replica_view.h"
#include "plan/text/describe.h"
#include "plan/text/describe_prediction.h"
#include "plan/text/dry_run_text.h"
#include "report/run_record.h"
#include "report/sweep_svg.h"
#include "session/cluster.h"
#include "session/run_directory.h"
#include "session/run_files.h"
#include "session/run_preview.h"
#include "train/job_warnings.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

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

/// What workers are predicted to take of what each is to train.
void print_workers(const PlannedPreview& preview) {
    const ReplicaJob& replica = preview.workers.replica;
    const WorkerQueues& queues = preview.queues;
    std::string text = cat("workers     ", replica.count, " of tp ", replica.tensor, " x pp ",
                           replica.stages, ", predicted ", human_duration(preview.seconds),
                           " of training, ", format_fixed(preview.tokens_per_second(), 0),
                           " tokens/s; the lines above are about one of them\n");
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
    log::block(describe(compare_policies(job, plan.model, infos, cluster, rounds_predicted, own),
                        job.schedule.policy));
    if (cluster.ranks == 1) return;
    if (!found || found->ruled_out > 0) found = find_deployments(job, plan.model, infos, cluster);
    const std::vector<IdleRemedy> remedies =
        idle_remedies(job, plan, infos, cluster, rounds_predicted, own, *found);
    if (!remedies.empty()) log::block(describe(own, cluster.ranks, remedies));
    print_deployments(job, plan, infos, cluster, *found, own);
}

void warn_of_lanes_over_hosts(const Plan& plan, const Cluster& cluster) {
    std::vector<std::string> names;
    for (const std::int32_t host : hosts_of(cluster)) names.push_back(std::to_string(host));
    for (const std::string& text : stages_over_hosts(plan, names)) log::warn(text);
}

void print_warnings(const PlannedPreview& preview, const JobInputs& inputs) {
    for (const std::string& text :
         job_warnings(preview.job, preview.plan(), inputs.files, BaseFacts::of(*inputs.weights))) {
        log::warn(text);
    }
    warn_of_lanes_over_hosts(preview.plan(), preview.cluster);
}

/// "one pipeline", "[{tp: 2, pp: 2}]", "4 workers of [{tp: 1, pp: 1}]".
std::string way_text(const PlannedPreview& preview) {
    if (preview.job.parallel.by_workers()) {
        ReplicaJob one = preview.workers.replica;
        one.count = 1;
        return cat(preview.workers.replica.count, " workers of ", deployment_text({one}));
    }
    const Plan& plan = preview.plan();
    const bool pipeline = plan.replicas.size() == 1 && plan.replicas.front().tensor == 1;
    return pipeline ? "one pipeline" : deployment_text(deployment_of(plan, 0));
}

std::string costs_text(const PlannedPreview& preview) {
    const std::string source = prediction_source(preview.plan());
    return preview.costs_from.empty() ? source : cat(source, ", from ", preview.costs_from);
}

/// What runs have shown of such predictions: the one in run.dir, else others on such a device.
std::string seen_text(const PlannedPreview& preview) {
    std::vector<std::string> seen;
    if (!preview.observed.empty())
        seen.push_back("the run in run.dir observed " + preview.observed);
    const std::string last = last_prediction(preview.job.run.dir);
    if (!last.empty()) seen.push_back("the last run " + last.substr(0, last.find(';')));
    if (seen.empty()) return seen_error_text(preview.plan(), preview.cluster);
    return join(seen, "; ");
}

/// `cluster`: all ranks, also of workers.
void print_answer(const PlannedPreview& preview, const std::vector<DatasetInfo>& infos,
                  const Cluster& cluster, std::optional<JobChange> change) {
    const std::string seen = seen_text(preview);
    std::string text =
        describe(DryRunAnswer{cluster, preview.plan(), way_text(preview), preview.seconds,
                              std::move(change), costs_text(preview), seen});
    text.pop_back();  // the log ends the line
    log::block(text);
    const TextSeconds writing = text_seconds(preview.job, preview.plan(), infos);
    if (writing.texts == 0) return;
    log::info(
        cat("a step of all adapters with rewards writes ", writing.texts, " texts, about ",
            human_duration(writing.seconds),
            " if each is as long as it may be (a guess, without the time to draw tokens and "
            "that of the reward program); training is predicted for rollouts of max_seq_len"));
}

/// As planned; where that does not fit the proposed change is printed before the error goes on.
PlannedPreview answered_preview(const CommandLine& command_line, const MpiSession& mpi,
                                const Job& job, const JobInputs& inputs, const Cluster& cluster) {
    std::optional<PlannedPreview> preview;
    try {
        preview = planned_preview(command_line, mpi, job, inputs, cluster);
    } catch (const InputError&) {
        const auto found = find_change(command_line, mpi, job, inputs, cluster, nullptr);
        if (found) print_answer(found->preview, inputs.infos, cluster, found->change);
        throw;
    }
    print_warnings(*preview, inputs);
    const auto found = find_change(command_line, mpi, job, inputs, cluster, &*preview);
    print_answer(*preview, inputs.infos, cluster,
                 found ? std::optional(found->change) : std::nullopt);
    return std::move(*preview);
}

/// What stands behind the answer.
void print_details(const PlannedPreview& preview, const JobInputs& inputs) {
    const Plan& plan = preview.plan();
    log::block("\ndatasets\n" + describe_datasets(preview.job, inputs.files));
    log::block(describe(preview.job, plan, preview.planned.report, inputs.infos));
    log::block(describe(plan, preview.prediction) +
               describe_links(preview.job, plan, preview.cluster));
    log::block(cat("planned in  ", format_fixed(preview.planned_in, 2), " s, predicted in ",
                   format_fixed(preview.predicted_in, 2), " s of processor time\n"));
    if (preview.job.parallel.by_workers()) print_workers(preview);
}

void plan_and_predict(const CommandLine& command_line, const MpiSession& mpi, const Job& job,
                      const Cluster& cluster) {
    const std::string dir = output_directory(command_line, job);
    if (!dir.empty()) check_is_no_place_of_a_run(dir);
    const JobInputs inputs = open_job_inputs(job);
    PlannedPreview preview = answered_preview(command_line, mpi, job, inputs, cluster);
    if (command_line.verbose || command_line.compare) print_details(preview, inputs);
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
    } else if (command_line.verbose) {
        log::block(
            "other ways  --compare predicts other policies, deployments and ways to train\n");
    }
    if (dir.empty()) return;
    write_pictures(dir, preview.job, preview.plan(), preview.prediction.start);
    log::info(cat("wrote timeline.svg and ", trace_file_name, " to ", dir));
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
        choice.seconds = preview.seconds;
        choice.tokens = preview.prediction.tokens;
    } catch (const InputError& error) {
        choice.obstacle = error.problems().front().what;
    }
    return choice;
}

void print_rank_choices(const CommandLine& command_line, const MpiSession& mpi, const Job& job,
                        const std::vector<Cluster>& clusters) {
    const JobInputs inputs = open_job_inputs(job);
    if (command_line.verbose) log::block("datasets\n" + describe_datasets(job, inputs.files));
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
        check_run_directory(job);
        if (clusters.size() > 1) return print_rank_choices(command_line, mpi, job, clusters);
        plan_and_predict(command_line, mpi, job, clusters.front());
    });
    return ExitCode::done;
}

}  // namespace loratrain
