#include <exception>

#include "app/run.h"
#include "backend/gpu_info.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi_session.h"
#include "session/exit_file.h"
#include "train/orders/stop_request.h"

namespace loratrain {
namespace {

ExitCode run_and_report(int argc, char** argv, const MpiSession& mpi) {
    try {
        ExitCode code = ExitCode::error;
        clearly([&] { code = run(parse_command_line(argc, argv), mpi); });
        return code;
    } catch (const InputError& error) {
        if (mpi.is_root()) log::error(error.what());
        return ExitCode::bad_input;
    } catch (const std::exception& error) {
        if (mpi.is_root()) log::error(error.what());
        return ExitCode::error;
    }
}

/// Called before the initialisers of all libraries, some of which start threads that a signal would
/// end the process in: what comes from then on waits for install_stop_signals().
void hold_signals(int /*argc*/, char** /*argv*/, char** /*environment*/) {
    hold_stop_signals();
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first_of_all)(int, char**,
                                                                         char**) = hold_signals;

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    loratrain::install_stop_signals();
    loratrain::prepare_gpu_environment();
    loratrain::watch_start(argc, argv);
    const loratrain::MpiRuntime runtime(&argc, &argv);
    const loratrain::MpiSession& world = runtime.world();
    loratrain::install_stop_signals();
    loratrain::log::set_rank(world.rank());
    const loratrain::ExitFile exit_file(world);
    return exit_file.leave(loratrain::run_and_report(argc, argv, world));
}
