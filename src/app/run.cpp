#include "app/run.h"

#include "app/commands.h"
#include "base/log.h"
#include "base/version.h"
#include "bench/bench_command.h"
#include "config/job_keys.h"
#include "config/job_yaml.h"
#include "session/run_directory.h"
#include "train/orders/stop_request.h"
#include "watch/solo_watch.h"

namespace loratrain {

namespace {

std::string version_block() {
    std::string text = cat("loratrain ", version_text(), " (", git_hash(), ")\n", build_text());
    for (const Library& library : all_libraries()) {
        text += cat("\n  ", library.name, " ", library.version);
    }
    return text;
}

/// Its ranks are watched all the time; others do little together.
bool trains(const CommandLine& command_line) {
    return command_line.command == Command::train && !command_line.dry_run;
}

}  // namespace

void watch_start(int argc, const char* const* argv) {
    const char* what = "starting MPI";
    solo_watch::begin(RunJob{}.peer_timeout, what);
    try {
        const CommandLine line = parse_command_line(argc, argv);
        if (trains(line)) {
            solo_watch::begin(read_peer_timeout(line.job_path, line.overrides), what);
        }
    } catch (const std::exception&) {
        return;  // reported once there is one rank to do so
    }
}

ExitCode run(const CommandLine& command_line, const MpiSession& mpi) {
    solo_watch::advance("reading the job");
    if (!trains(command_line)) {
        release_stop_signals();
        solo_watch::end();
    }
    switch (command_line.command) {
        case Command::help:
            log::block(help_text());
            return ExitCode::done;
        case Command::keys:
            log::block(command_line.markdown ? keys_markdown(find_job_keys(command_line.keys))
                                             : keys_text(find_job_keys(command_line.keys)));
            return ExitCode::done;
        case Command::version:
            log::block(version_block());
            return ExitCode::done;
        case Command::import_hf:
            return import_command(command_line, mpi);
        case Command::bench:
            return bench_command(command_line, mpi);
        case Command::status:
            return status_command(command_line, mpi);
        case Command::report:
            return report_command(command_line, mpi);
        case Command::stop:
            return stop_command(command_line, mpi);
        case Command::check_export:
            return check_export_command(command_line, mpi);
        case Command::merge:
            return merge_command(command_line, mpi);
        case Command::selftest:
            return selftest_command(mpi);
        case Command::train:
            return train_command(command_line, mpi);
    }
    return ExitCode::error;
}

}  // namespace loratrain
