#include <exception>

#include "app/run.h"
#include "backend/gpu_info.h"
#include "base/log.h"
#include "comm/mpi_runtime.h"
#include "session/exit_file.h"
#include "train/orders/stop_request.h"

namespace loratrain {
namespace {

ExitCode run_and_report(int argc, char** argv, const MpiSession& mpi) {
    try {
        return run(parse_command_line(argc, argv), mpi);
    } catch (const InputError& error) {
        if (mpi.is_root()) log::error(error.what());
        return ExitCode::bad_input;
    } catch (const std::exception& error) {
        if (mpi.is_root()) log::error(error.what());
        return ExitCode::error;
    }
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    loratrain::install_stop_signals();
    loratrain::prepare_gpu_environment();
    const loratrain::MpiRuntime runtime(&argc, &argv);
    const loratrain::MpiSession& world = runtime.world();
    loratrain::install_stop_signals();
    loratrain::log::set_rank(world.rank());
    const loratrain::ExitFile exit_file(world);
    return exit_file.leave(loratrain::run_and_report(argc, argv, world));
}
