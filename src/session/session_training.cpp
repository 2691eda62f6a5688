#include "base/activity.h"
#include "base/log.h"
#include "base/text.h"
#include "base/warn_at_failure.h"
#include "comm/collective.h"
#include "report/status_text.h"
#include "session/cluster.h"
#include "session/run_preview.h"
#include "session/session.h"
#include "train/job_warnings.h"
#include "train/records/best_adapter.h"
#include "train/records/exports.h"
#include "train/records/held_out.h"

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
    const std::string devices = describe_devices(mpi_, plan_.backend);
    trainer_.emplace(TrainerParts{mpi_, job_, plan_, inputs_.files, inputs_.infos, identity_, *run_,
                                  stop_, live_table(job_), inputs_.weights->max_positions()});
    agree(mpi_, [&] {
        if (!checkpoint_.empty()) restore();
        if (directory_) write_start(devices);
    });
    log::info("backend: " + backend_->description());
    log::block(devices);
    record_memory(mpi_, job_.run.dir, *backend_, memory_before_);
}

void Session::restore() {
    const RunState state =
        load_checkpoint(checkpoint_, job_, plan_.model, run_->stage().plan(), run_->stage().bank());
    if (former_) {
        for (const auto& text : schedule_warnings(job_, plan_, *former_, state)) log::warn(text);
    }
    trainer_->restore(state, directory_ && directory_->set_back());
    log::info("continuing from " + checkpoint_);
}

void Session::write_start(const std::string& devices) {
    restore_best_adapters(job_, trainer_->state(), checkpoint_);
    if (!checkpoint_.empty()) mend_exports(job_, plan_.model, trainer_->state(), checkpoint_);
    directory_->write_records(job_, plan_, identity_, mpi_,
                              command_text(command_line_, mpi_.size()), backend_->description(),
                              devices);
    write_held_out(job_, inputs_.files);
    if (checkpoint_.empty()) write_preview(job_, plan_, inputs_.infos);
}

ExitCode Session::train() {
    together(mpi_, "before the first step", [&] {
        backend_->synchronize();
        barrier(mpi_);
        run_->recorder().set_zero();
    });
    const ExitCode code = trainer_->run();
    log::end_live();
    activity::begin(activity::Task::finish);
    watchdog_->dismiss();
    write_end(end_reason(code, trainer_->stop_reason()));
    return code;
}

void Session::write_end(const std::string& reason) {
    log_memory(plan_, record_memory(mpi_, job_.run.dir, *backend_, memory_before_));
    const std::string makespan = trainer_->makespan_text();
    if (!makespan.empty()) log::info("training " + makespan);
    refine_costs(mpi_, job_, plan_, run_->recorder(), costs_);
    if (directory_) warn_at_failure([&] { directory_->write_end(reason); });
    if (mpi_.is_root()) log::block(ProgressLog::closing_table(job_, trainer_->state()));
    log::info(reason);
}

}  // namespace loratrain
