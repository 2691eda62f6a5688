#include "app/commands.h"

#include <algorithm>

#include "base/log.h"
#include "comm/collective.h"
#include "config/yaml_reader.h"
#include "report/run_record.h"
#include "session/run_files.h"
#include "train/checkpoint/run_state.h"
#include "train/orders/inbox.h"

namespace loratrain {

void check_can_stop(const std::string& run_dir, const RunStatus& status,
                    const std::string& adapter) {
    std::vector<std::string> names;
    for (const AdapterProgress& progress : status.adapters) names.push_back(progress.name);
    const auto found = std::find(names.begin(), names.end(), adapter);
    if (found == names.end()) {
        throw InputError("stop", cat("'", adapter, "' is not an adapter of ", run_dir),
                         hint_among(adapter, names));
    }
    const std::string& state =
        status.adapters[static_cast<std::size_t>(found - names.begin())].status;
    if (state == status_name(AdapterStatus::running) ||
        state == status_name(AdapterStatus::waiting)) {
        return;
    }
    throw InputError("stop", cat("'", adapter, "' of ", run_dir, " has ended already: ", state),
                     "there is nothing to stop; loratrain status shows every adapter's state");
}

ExitCode stop_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        const std::string& dir = command_line.run_dir;
        const std::optional<RunStatus> status = read_status(dir);
        if (!status) {
            throw InputError(dir, "has not begun to train yet", "try again when it has");
        }
        check_can_stop(dir, *status, command_line.adapter);
        check_run_files(dir);
        request_stop(dir, command_line.adapter);
        const bool runs = status->state == "running";
        log::info(cat("asked ", dir, " to end ", command_line.adapter,
                      runs ? " at the end of the steps that are planned"
                           : "; it does not run now and will do so when it is started again"));
    });
    return ExitCode::done;
}

}  // namespace loratrain
