#include "app/check_export_command.h"

#include <string>

#include "base/log.h"
#include "comm/collective.h"
#include "io/adapters/loader_rules.h"
#include "io/hub_name.h"
#include "io/weights/base_weights.h"

namespace loratrain {

namespace {

std::string loader_result_text(const LoaderResult& result) {
    if (!result.unknown.empty() && result.obstacles.empty()) {
        return cat(result.loader, ": unknown: ", result.unknown);
    }
    std::string text = cat(result.loader, ": ",
                           result.loads() ? "loads it" : "does not load it as it was trained");
    for (const std::string& obstacle : result.obstacles) text += cat("\n  because: ", obstacle);
    for (const std::string& advice : result.advice) text += cat("\n  ", advice);
    return text;
}

}  // namespace

ExitCode check_export_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        require_directory(command_line.run_dir,
                          "give a directory that PEFT or loratrain has written");
        const auto base = open_base_weights(command_line.base);
        for (const LoaderResult& result : check_loaders(command_line.run_dir, base->spec())) {
            log::block(loader_result_text(result));
        }
    });
    return ExitCode::done;
}

}  // namespace loratrain
