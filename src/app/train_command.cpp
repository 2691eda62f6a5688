#include "app/train_command.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "app/preview.h"
#include "backend/make_backend.h"
#include "base/activity.h"
#include "base/log.h"
#include "comm/collective.h"
#include "comm/communicator.h"
#include "config/inbox_yaml.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "measure/measured_costs.h"
#include "measure/recording_communicator.h"
#include "plan/deploy/make_plan.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "plan/text/describe.h"
#include "plan/text/plan_text.h"
#include "report/run_record.h"
#include "report/status_text.h"
#include "session/cluster.h"
#include "session/job_inputs.h"
#include "session/run_directory.h"
#include "train/orders/inbox.h"
#include "train/orders/stop_request.h"
#include "train/records/best_adapter.h"
#include "train/records/held_out.h"
#include "train/trainer.h"
#include "watch/watchdog.h"

namespace loratrain {

namespace {

std::string command_text(const CommandLine& command_line, int ranks) {
    return cat("loratrain ", join(command_line.arguments, " "), " (", ranks, " ranks)");
}

RunIdentity identify(const Job& job, const JobInputs& inputs) {
    RunIdentity identity;
    identity.job_yaml = to_yaml(job);
    identity.weights_checksum = inputs.weights->checksum();
    for (const Dataset& dataset : inputs.files.train) {
        identity.data_checksums.push_back(dataset.checksum());
    }
    for (const auto& dataset : inputs.files.eval) {
        identity.eval_checksums.push_back(dataset ? dataset->checksum() : "");
    }
    return identity;
}

/// For what is no reason to end otherwise than the training did.
void warn_at_failure(const std::function<void()>& write) {
    try {
        write();
    } catch (const std::exception& error) {
        log::warn(error.what());
    }
}

/// Writes <run.dir>/memory.json; that it cannot be written is only a warning. Collective.
std::vector<MeasuredMemory> record_memory(const MpiSession& mpi, const std::string& dir,
                                          const Backend& backend, const ResidentMemory& before) {
    const auto allocated = gather_numbers(mpi, backend.memory().peak);
    const auto resident = gather_numbers(mpi, resident_memory().peak - before.now);
    std::vector<MeasuredMemory> ranks;
    for (std::size_t r = 0; r < allocated.size(); ++r) ranks.push_back({allocated[r], resident[r]});
    if (!mpi.is_root()) return ranks;
    warn_at_failure(
        [&] { write_text_atomic(dir + "/" + memory_file_name, memory_to_json(ranks)); });
    return ranks;
}

void log_memory(const Plan& plan, const std::vector<MeasuredMemory>& ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        log::info(cat("memory of rank ", r, ": planned ", human_bytes(plan.memory[r].total()),
                      ", allocated ", human_bytes(ranks[r].allocated), ", resident growth ",
                      human_bytes(ranks[r].resident_growth)));
    }
}

/// Takes into the job what its run has accepted through the inbox before this start. Collective.
void add_accepted(const CommandLine& command_line, const MpiSession& mpi, Job& job) {
    if (command_line.restart == Restart::never) return;
    std::vector<InboxFile> files;
    agree(mpi, [&] {
        if (mpi.is_root()) files = accepted_additions(job.run.dir);
    });
    files.resize(std::stoul(broadcast_text(mpi, std::to_string(files.size()))));
    for (InboxFile& file : files) {
        file.path = broadcast_text(mpi, file.path);
        file.text = broadcast_text(mpi, file.text);
        agree(mpi, [&] { add_to_job(job, read_inbox(file.text, file.path, job)); });
    }
}

/// Everything a rank holds while it trains.
struct TrainingSession {
    Job job;
    JobInputs inputs;
    RunIdentity identity;
    std::unique_ptr<RunDirectory> directory;
    Plan plan;
    std::optional<Plan> former;  ///< of the run that is continued, the root's
    MeasuredCosts costs;         ///< the root's
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Stage> stage;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<TraceRecorder> recorder;
    std::unique_ptr<RecordingCommunicator> recording;
    std::unique_ptr<PipelineRunner> runner;
    std::unique_ptr<Loader> loader;
};

std::unique_ptr<Backend> make_backend_for(const Job& job, const Plan& plan, const MpiSession& mpi) {
    const bool cuda = plan.backend == BackendKind::cuda;
    return make_backend(cuda ? "cuda" : "cpu",
                        {threads_per_rank(mpi), mpi.host_rank(), plan.compute,
                         cat(job.run.dir, "/gemm_algorithms.rank", mpi.rank())});
}

/// The plan of the run that is continued; none where it cannot be read, by a version before.
std::optional<Plan> former_plan(const Job& job) {
    try {
        return plan_from_text(read_text(job.run.dir + "/plan.yaml"));
    } catch (const std::exception& error) {
        log::warn(cat("sizes of microbatches are chosen anew: ", error.what()));
        return std::nullopt;
    }
}

/// Root reads, plans with built-in costs and takes the run directory; every rank gets the
/// checkpoint to continue from.
std::string open_run(const CommandLine& command_line, const MpiSession& mpi, const Cluster& cluster,
                     TrainingSession& session) {
    const Job& job = session.job;
    std::string checkpoint;
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        session.inputs = open_job_inputs(job);
        session.plan =
            make_plan(job, session.inputs.weights->spec(), session.inputs.infos, cluster);
        session.identity = identify(job, session.inputs);
        session.directory = std::make_unique<RunDirectory>(job, command_line, session.identity);
        checkpoint = session.directory->checkpoint();
        if (checkpoint.empty()) return;
        session.former = former_plan(job);
        if (!session.former) return;
        session.plan =
            make_plan(job, session.plan.model, session.inputs.infos, cluster, &*session.former);
    });
    return broadcast_text(mpi, checkpoint);
}

/// Every rank gets the plan by measured costs.
void settle_plan(const MpiSession& mpi, const Cluster& cluster, TrainingSession& session) {
    const Job& job = session.job;
    session.costs = measure_costs(
        mpi, job, session.plan, [&](const Plan& plan) { return make_backend_for(job, plan, mpi); });
    std::string plan_text;
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        if (session.costs.known()) {
            session.plan = plan_again(session.plan, session.costs.costs, job, session.inputs.infos,
                                      cluster, session.former ? &*session.former : nullptr);
        }
        plan_text = to_text(session.plan);
        log::block("datasets\n" + describe_datasets(job, session.inputs.files));
        log::block(describe(job, session.plan, session.inputs.infos));
    });
    session.plan = plan_from_text(broadcast_text(mpi, plan_text));
}

/// Does collective work: a rank that fails in it alone ends the job, as the others wait for it.
template <class Work>
auto together(const MpiSession& mpi, const char* what, const Work& work) {
    try {
        return work();
    } catch (const InputError&) {
        throw;
    } catch (const std::exception& error) {
        log::error(cat("on host ", mpi.host(), ", ", what, ": ", error.what()));
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

/// A stop that was asked for while the run starts: there is nothing to save yet. Collective.
bool stop_asked(const MpiSession& mpi) {
    const int signal = stop_signal_of_any_rank(mpi);
    if (signal == 0) return false;
    log::info(cat("stopped: ", signal_text(signal),
                  " received before this start trained; the same command continues"));
    return true;
}

bool reads_tokens(const StagePlan& stage) {
    return stage.has_embedding || stage.has_head;
}

void build_stage(const MpiSession& mpi, TrainingSession& session) {
    agree(mpi, [&] { session.backend = make_backend_for(session.job, session.plan, mpi); });
    session.communicator = together(mpi, "connecting the ranks",
                                    [&] { return make_communicator(mpi, *session.backend); });
    together(mpi, "measuring messages", [&] {
        settle_costs(mpi, session.job, session.plan, *session.communicator, *session.backend,
                     session.costs);
    });
    if (session.costs.known()) session.plan.costs = session.costs.costs;
    agree(mpi, [&] {
        const Job& job = session.job;
        const Plan& plan = session.plan;
        const Place place = place_of(plan, mpi.rank());
        const ReplicaView view = view_of(plan, plan.replicas[place.replica]);
        const bool with_tokens = reads_tokens(view.replica.stages[place.stage]);
        if (!mpi.is_root()) {
            session.inputs.weights = open_weights(job);
            if (with_tokens) session.inputs.files = open_datasets(job, plan.model.vocab_size);
        }
        session.stage = std::make_unique<Stage>(job, view, place.stage, *session.inputs.weights,
                                                *session.backend);
        session.recorder = std::make_unique<TraceRecorder>(job, view, place.stage, *session.backend,
                                                           job.logging.trace);
        session.recording =
            std::make_unique<RecordingCommunicator>(*session.communicator, *session.recorder);
        session.runner = std::make_unique<PipelineRunner>(job, view, place.stage, *session.stage,
                                                          *session.recording, *session.backend);
        session.runner->record_with(*session.recorder);
        session.loader =
            std::make_unique<Loader>(session.inputs.files, datasets_of_adapters(job), with_tokens);
    });
}

std::string end_reason(ExitCode code, const std::string& stop_reason) {
    switch (code) {
        case ExitCode::done:
            return "done";
        case ExitCode::some_adapters_failed:
            return "some adapters failed";
        case ExitCode::stopped_resume_me:
            return "stopped: " + stop_reason + "; the same command continues";
        default:
            return "error";
    }
}

/// The table of the run on the root's terminal, if there is one.
StatusView live_table(const Job& job) {
    if (job.logging.live == LiveTable::never || !log::start_live()) return {};
    return [dir = job.run.dir](const RunStatus& status) {
        const Pulse pulse{status.state == "running" ? Life::alive : Life::ended};
        log::show_live(status_lines(dir, status, pulse, log::live_rows()));
    };
}

void restore(const std::string& checkpoint, const TrainingSession& session, Trainer& trainer) {
    trainer.restore(load_checkpoint(checkpoint, session.job, session.plan.model,
                                    session.stage->plan(), session.stage->bank()),
                    session.directory && session.directory->set_back());
    log::info("continuing from " + checkpoint);
}

/// What the run directory holds before the first step. Root only.
void write_start(const CommandLine& command_line, const MpiSession& mpi,
                 const TrainingSession& session, const RunState& state,
                 const std::string& checkpoint, const std::string& devices) {
    restore_best_adapters(session.job, state, checkpoint);
    session.directory->write_records(session.job, session.plan, session.identity, mpi,
                                     command_text(command_line, mpi.size()),
                                     session.backend->description(), devices);
    write_held_out(session.job, session.inputs.files);
    if (checkpoint.empty()) write_preview(session.job, session.plan, session.inputs.infos);
}

/// What the run has cost and how it ended. Collective.
void write_end(const MpiSession& mpi, const ResidentMemory& before, const Trainer& trainer,
               const std::string& reason, TrainingSession& session) {
    log_memory(session.plan, record_memory(mpi, session.job.run.dir, *session.backend, before));
    if (trainer.makespan().compared()) log::info("training " + trainer.makespan().text());
    refine_costs(mpi, session.job, session.plan, *session.recorder, session.costs);
    if (session.directory) warn_at_failure([&] { session.directory->write_end(reason); });
    if (mpi.is_root()) log::block(ProgressLog::closing_table(session.job, trainer.state()));
    log::info(reason);
}

}  // namespace

ExitCode train_command(const CommandLine& command_line, const MpiSession& mpi) {
    TrainingSession session;
    agree(mpi, [&] { session.job = read_job(command_line.job_path, command_line.overrides); });
    add_accepted(command_line, mpi, session.job);
    if (command_line.dry_run) return preview(command_line, mpi, session.job);

    StopConditions stop(session.job, command_line.stop_after);
    Watchdog watchdog(mpi, session.job.run.peer_timeout);
    give_back_large_blocks();
    const ResidentMemory before = resident_memory();
    const Cluster cluster = describe_cluster(mpi, session.job.run.backend);
    const std::string checkpoint = open_run(command_line, mpi, cluster, session);
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    settle_plan(mpi, cluster, session);
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    build_stage(mpi, session);
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    const std::string devices = describe_devices(mpi, session.plan.backend);
    Trainer trainer({mpi, session.job, session.plan, session.inputs.files, session.inputs.infos,
                     session.identity, reads_tokens(session.stage->plan()), *session.stage,
                     *session.runner, *session.loader, stop, *session.recorder,
                     live_table(session.job)});
    agree(mpi, [&] {
        if (!checkpoint.empty()) restore(checkpoint, session, trainer);
        if (session.directory) {
            write_start(command_line, mpi, session, trainer.state(), checkpoint, devices);
        }
    });
    log::info("backend: " + session.backend->description());
    log::block(devices);

    record_memory(mpi, session.job.run.dir, *session.backend, before);

    together(mpi, "before the first step", [&] {
        session.backend->synchronize();
        barrier(mpi);
        session.recorder->set_zero();
    });
    const ExitCode code = trainer.run();
    log::end_live();
    activity::begin(activity::Task::finish);
    watchdog.dismiss();
    write_end(mpi, before, trainer, end_reason(code, trainer.stop_reason()), session);
    return code;
}

}  // namespace loratrain
