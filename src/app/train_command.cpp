#include "app/commands.h"

#include <optional>
#include <utility>

#include "app/preview.h"
#include "base/log.h"
#include "base/text.h"
#include "session/run_way.h"
#include "session/session.h"
#include "train/orders/stop_request.h"
#include "watch/solo_watch.h"
#include "watch/watchdog.h"

namespace loratrain {

namespace {

/// A stop that was asked for while the run starts: there is nothing to save yet. Collective.
bool stop_asked(const MpiSession& mpi) {
    const int signal = stop_signal_of_any_rank(mpi);
    if (signal == 0) return false;
    log::info(cat("stopped: ", signal_text(signal),
                  " received before training began; the same command continues"));
    return true;
}

ExitCode train(const MpiSession& mpi, Session& session, BegunSession begun) {
    session.open(std::move(begun));
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.settle_plan();
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.build();
    if (stop_asked(mpi)) return ExitCode::stopped_resume_me;
    session.begin();
    return session.train();
}

/// What a session begins with.
struct JobToTrain {
    Job job;
    BegunSession begun;
};

JobToTrain job_to_train(const CommandLine& command_line, const MpiSession& mpi) {
    JobToTrain next{read_job_of_run(command_line, mpi), {}};
    next.begun = settle_run_way(command_line, mpi, next.job);
    return next;
}

/// On all ranks together; a run that is to be deployed anew goes on in a session of its own.
ExitCode train_jointly(const CommandLine& command_line, const MpiSession& mpi, JobToTrain next) {
    CommandLine again = command_line;
    again.restart = Restart::automatic;
    std::optional<FormerSession> former;
    for (const CommandLine* line = &command_line;; line = &again) {
        if (former) next = job_to_train(again, mpi);
        std::optional<Session> session;
        session.emplace(mpi, *line, std::move(next.job), std::exchange(former, std::nullopt));
        const ExitCode code = train(mpi, *session, std::exchange(next.begun, {}));
        former = session->former();
        if (!former) return code;
    }
}

/// Which the root rank may plan for long.
WorkerShape watched_shape(const MpiSession& mpi, const Job& job) {
    Watchdog watchdog(mpi, job.run.peer_timeout);
    WorkerShape shape = shape_of_workers(mpi, job);
    watchdog.dismiss();
    solo_watch::begin(job.run.peer_timeout, "cutting the ranks into workers");
    return shape;
}

}  // namespace

ExitCode train_command(const CommandLine& command_line, const MpiSession& mpi) {
    if (command_line.dry_run) return preview(command_line, mpi, read_job_of_run(command_line, mpi));

    give_back_large_blocks();
    JobToTrain next = job_to_train(command_line, mpi);
    if (!next.job.parallel.by_workers()) return train_jointly(command_line, mpi, std::move(next));
    const WorkerGroup group(mpi, watched_shape(mpi, next.job));
    Session session(group, command_line, std::move(next.job));
    return train(mpi, session, std::move(next.begun));
}

}  // namespace loratrain
