#include "app/train_command.h"

#include "app/preview.h"
#include "base/log.h"
#include "base/text.h"
#include "session/job_of_run.h"
#include "session/session.h"
#include "train/orders/stop_request.h"

namespace loratrain {

namespace {

/// A stop that was asked for while the run starts: there is nothing to save yet. Collective.
bool stop_asked(const MpiSession& mpi) {
    const int signal = stop_signal_of_any_rank(mpi);
    if (signal == 0) return false;
    log::info(cat("stopped: ", signal_text(signal),
                  " received before this start trained; the same command continues"));
    return true;
}

ExitCode train(const MpiSession& mpi, Session&& session) {
    session.open();
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.settle_plan();
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.build();
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.begin();
    return session.train();
}

}  // namespace

ExitCode train_command(const CommandLine& command_line, const MpiSession& mpi) {
    Job job = read_job_of_run(command_line, mpi);
    if (command_line.dry_run) return preview(command_line, mpi, job);

    give_back_large_blocks();
    if (!job.parallel.by_workers()) return train(mpi, Session(mpi, command_line, std::move(job)));
    const WorkerGroup group(mpi, shape_of_workers(mpi, job));
    return train(mpi, Session(group, command_line, std::move(job)));
}

}  // namespace loratrain
