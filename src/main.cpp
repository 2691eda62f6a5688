#include <exception>

#include "app/run.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

int main(int argc, char** argv) {
    using loratrain::ExitCode;
    loratrain::MpiSession mpi(&argc, &argv);
    loratrain::log::set_rank(mpi.rank());
    try {
        const loratrain::CommandLine command_line = loratrain::parse_command_line(argc, argv);
        return static_cast<int>(loratrain::run(command_line, mpi));
    } catch (const loratrain::InputError& error) {
        if (mpi.is_root()) loratrain::log::error(error.what());
        return static_cast<int>(ExitCode::bad_input);
    } catch (const std::exception& error) {
        if (mpi.is_root()) loratrain::log::error(error.what());
        return static_cast<int>(ExitCode::error);
    }
}
