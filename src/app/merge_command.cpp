#include "app/merge_command.h"

#include "base/log.h"
#include "comm/collective.h"
#include "io/adapters/merge_adapter.h"
#include "io/hub_name.h"

namespace loratrain {

ExitCode merge_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        require_directory(command_line.run_dir,
                          "give a directory that PEFT or loratrain has written");
        const auto base = open_base_weights(command_line.base);
        const MergeReport report = merge_adapter(command_line.run_dir, *base, command_line.output);
        log::info(cat("wrote ", command_line.output, ": ", report.modules, " modules with LoRA, ",
                      report.files, report.files == 1 ? " file of " : " files of ",
                      human_bytes(report.bytes)));
    });
    return ExitCode::done;
}

}  // namespace loratrain
