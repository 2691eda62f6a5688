#include "app/report_command.h"

#include "base/log.h"
#include "base/system.h"
#include "comm/collective.h"
#include "io/files.h"
#include "report/report_page.h"

namespace loratrain {

namespace {

Pulse pulse_now(const std::optional<RunStatus>& status) {
    if (!status) return {};
    return pulse_of(*status, unix_time(), host_name(), process_exists);
}

}  // namespace

ExitCode status_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        const std::string& dir = command_line.run_dir;
        const auto status = read_status(dir);
        log::block(status ? status_text(dir, *status, pulse_now(status))
                          : dir + ": starting, no heartbeat yet");
    });
    return ExitCode::done;
}

ExitCode report_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        const RunRecord run = read_run(command_line.run_dir);
        const std::string out = command_line.output.empty() ? command_line.run_dir + "/report.html"
                                                            : command_line.output;
        write_text_atomic(out, report_page(run, pulse_now(run.status), unix_time()));
        log::info("wrote " + out);
    });
    return ExitCode::done;
}

}  // namespace loratrain
