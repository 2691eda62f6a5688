#include <algorithm>

#include "backend/gpu_info.h"
#include "base/activity.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/collective.h"
#include "data/dataset_files.h"
#include "io/files.h"
#include "plan/place.h"
#include "report/account_text.h"
#include "report/status_text.h"
#include "session/cluster.h"
#include "session/redeployment.h"
#include "session/run_preview.h"
#include "session/session.h"
#include "train/checkpoint/best_adapter.h"
#include "train/job_warnings.h"
#include "train/records/exports.h"
#include "watch/solo_watch.h"

/// Training, and what the run directory holds before and after.

namespace loratrain {

namespace {

std::string command_text(const CommandLine& command_line, int ranks) {
    return cat("loratrain ", join(command_line.arguments, " "), " (", ranks, " ranks)");
}

/// The table of the run on the root's terminal, if there is one.
StatusView live_table(const Job& job) {
    if (job.logging.live == LiveTable::never || !log::start_live()) return {};
    return [dir = job.run.dir](const RunStatus& status) {
        const Pulse pulse{status.state == "running" ? Life::alive : Life::ended};
        log::show_live(status_lines(dir, status, pulse, log::live_rows()));
    };
}

GpuSensors sensors_of(const GpuInfo& gpu) {
    GpuSensors sensors(gpu.bus_id);
    if (!sensors.found()) log::info("power and clocks are not recorded: no NVML for the GPU");
    return sensors;
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

}  // namespace

void Session::begin() {
    const std::string devices = describe_devices(world(), plan_.backend);
    if (group_ != nullptr) open_dispatcher();
    RunParts parts{job_,
                   plan_,
                   inputs_.files,
                   inputs_.infos,
                   identity_,
                   stop_,
                   {},
                   BaseFacts::of(*inputs_.weights)};
    parts.met_shapes = costs_.met_shapes;
    if (group_ == nullptr) {
        parts.view = live_table(job_);
        const bool redeploys = mpi_.is_root() && mpi_.size() > 1 && may_redeploy(job_);
        if (redeploys)
            parts.redeploys = [this](const RunState& state) {
                return redeployed(job_, plan_, inputs_.infos, cluster_, state).has_value();
            };
    } else {
        parts.dispatcher = link_ ? &*link_ : nullptr;
        parts.checkpoints = checkpoints_;
        parts.keeps_records = world().is_root();
    }
    make_sampler();
    parts.sampler = &*sampler_;
    if (directory_) parts.checkpointed = [this] { keep_account(); };
    trainer_.emplace(TrainerParts{parts, mpi_, *run_});
    agree(world(), [&] {
        if (!checkpoint_.empty()) restore();
        if (directory_) write_start(devices);
    });
    log::info("backend: " + backend_->description());
    log::block(devices);
    record_memory(world(), job_.run.dir, *backend_, other_memory(), memory_before_);
}

/// Leaders have the way to the dispatcher, the first one's root the dispatcher itself.
void Session::open_dispatcher() {
    const int start = broadcast(world(), static_cast<int>(former_run_.starts) + 1);
    checkpoints_ = worker_checkpoint_root(job_, start, group_->worker());
    if (!mpi_.is_root()) return;
    leaders_.emplace(group_->leaders());
    if (world().is_root()) {
        ledger_.emplace(job_, plan_, inputs_.infos, world().size(), live_table(job_));
        dispatcher_.emplace(Dispatcher::Parts{job_, plan_, inputs_.infos, &*leaders_,
                                              group_->count(), world().size(), costs_.met_shapes},
                            *ledger_);
    }
    link_.emplace(group_->worker(), *leaders_, dispatcher_ ? &*dispatcher_ : nullptr);
}

void Session::restore() {
    RunState state =
        load_checkpoint(checkpoint_, job_, plan_.model, run_->stage().plan(), run_->stage().bank());
    if (former_) {
        for (const auto& text : schedule_warnings(job_, plan_, *former_, state)) log::warn(text);
    }
    if (may_redeploy(job_)) state.deployment = deployment_;
    trainer_->restore(state, directory_ && directory_->set_back());
    log::info("continuing from " + checkpoint_);
}

void Session::write_start(const std::string& devices) {
    if (!dispatcher_) restore_best_adapters(job_, plan_.model, trainer_->state(), checkpoint_);
    if (!dispatcher_) restore_step_exports(job_, trainer_->state());
    if (!checkpoint_.empty()) mend_exports(job_, plan_.model, trainer_->state(), checkpoint_);
    directory_->write_records(job_, plan_, identity_, world(),
                              command_text(command_line_, world().size()), backend_->description(),
                              devices);
    write_held_out(job_, inputs_.files);
    make_directory(job_.run.dir + "/" + device_folder_name);
    if (checkpoint_.empty() && former_run_.stored.empty())
        write_preview(job_, plan_, inputs_.infos);
    if (!dispatcher_) return;
    dispatcher_->begin(former_run_);
    const RunState state = dispatcher_->state();
    restore_step_exports(job_, state);
    for (std::size_t a = 0; a < state.adapters.size(); ++a) {
        if (!is_unfinished(state.adapters[a].status)) continue;
        restore_best_adapter(job_, plan_.model, state, AdapterId{static_cast<std::int32_t>(a)},
                             former_run_.checkpoints[a]);
    }
}

ExitCode Session::train() {
    together(world(), "before the first step", [&] {
        backend_->synchronize();
        barrier(world());
        run_->recorder().set_zero();
        run_->recorder().follow_activity();
    });
    times_.end("records");
    if (former_ended_) {
        log::info(cat("deployed anew in ", human_duration(seconds_since(*former_ended_)), ", ",
                      times_.text()));
    } else {
        log::info("started in " + times_.text());
    }
    sampler_->take();
    const ExitCode code = trainer_->run();
    sampler_->take();
    leave_shared_layers();
    ended_ = std::chrono::steady_clock::now();
    log::end_live();
    activity::begin(activity::Task::finish);
    if (leaders_) close_dispatcher();
    watchdog_->dismiss();
    watch_the_end();
    const std::string reason = dispatcher_ ? dispatcher_->stop_reason() : trainer_->stop_reason();
    write_end(trainer_->goes_on() ? "goes on in another deployment" : end_reason(code, reason));
    return code;
}

/// Giving up memory may take some ranks longer than others.
void Session::watch_the_end() const {
    constexpr double least = 60.0;
    const double patience = job_.run.peer_timeout;
    if (patience > 0) solo_watch::begin(std::max(least, 2.0 * patience), "ending the run");
}

void Session::make_sampler() {
    GpuSensors sensors;
    if (plan_.backend == BackendKind::cuda) {
        const GpuInfo gpu = gpu_info(mpi_.host_rank());
        device_ = {gpu.name, mpi_.host() + " " + gpu.bus_id};
        sensors = sensors_of(gpu);
    }
    sampler_.emplace(
        job_.run.dir + "/" + device_folder_name, world().rank(),
        [this] { return backend_->memory().current + other_memory(); }, std::move(sensors));
}

/// Of this rank, that the backend does not count.
std::uint64_t Session::other_memory() const {
    return communicator_->bytes() + (shared_layers_ ? shared_layers_->room_bytes() : 0);
}

/// Ranks that end later may still read the memory of those that are done.
void Session::leave_shared_layers() {
    if (!shared_layers_) return;
    if (LayerStream* stream = run_->stage().layer_stream()) stream->finish();
    shared_layers_->leave();
}

std::optional<FormerSession> Session::former() const {
    if (!trainer_ || !trainer_->goes_on()) return std::nullopt;
    return FormerSession{cluster_, stop_, ended_};
}

/// Takes what workers have still reported.
void Session::close_dispatcher() {
    if (dispatcher_) leaders_->finish();
    barrier(group_->leaders());
    if (!dispatcher_) return;
    while (const std::optional<std::string> text = leaders_->next_report()) {
        dispatcher_->take(worker_report_from_bytes(*text));
    }
}

RankAccount Session::own_account(const PhaseTimes& times) {
    RankAccount account = account_of_rank(times, run_->recorder().account());
    account.device = device_;
    account.joules = sampler_->joules();
    const RankPlace place = place_of(plan_, mpi_.rank());
    if (place.stage > 0 || place.lane > 0) account.tokens = account.squares = 0.0;
    return account;
}

std::int64_t Session::trained_tokens() const {
    return dispatcher_ ? ledger_->journal.tokens() : trainer_->tokens();
}

/// What has been read of the stream's clock, which does not wait for the stream.
void Session::keep_account() {
    const activity::Aside files;
    PhaseTimes times = times_;
    times.add(training_phase, run_->recorder().account().total());
    RunAccount account =
        account_of_run({own_account(times)}, plan_, static_cast<double>(trained_tokens()));
    account.ranks = world().size();
    account.until_checkpoint = true;
    warn_at_failure([&] { directory_->write_account(account); });
}

void Session::write_end(const std::string& reason) {
    log_memory(plan_,
               record_memory(world(), job_.run.dir, *backend_, other_memory(), memory_before_));
    const std::string makespan =
        dispatcher_ ? dispatcher_->makespan_text() : trainer_->makespan_text();
    if (!makespan.empty()) {
        log::info("training " + makespan);
        if (directory_) warn_at_failure([&] { directory_->write_prediction(makespan); });
    }
    const std::string uses = longest_first_uses(mpi_, backend_->first_uses());
    if (!uses.empty()) log::info(uses);
    refine_costs(mpi_, job_, plan_, run_->recorder(), costs_);
    run_->recorder().settle();
    times_.end(training_phase);
    const RunAccount account =
        gather_account(world(), plan_, own_account(times_), static_cast<double>(trained_tokens()));
    std::vector<RunAccount> starts{account};
    if (directory_) warn_at_failure([&] { starts = directory_->write_end(reason, account); });
    if (directory_ && !trainer_->goes_on()) {
        const RunState state = dispatcher_ ? dispatcher_->state() : trainer_->state();
        log::block(ProgressLog::closing_table(job_, state));
        log::block(account_text(account, sum_of(starts), starts.size()));
    }
    log::info(reason);
}

}  // namespace loratrain
