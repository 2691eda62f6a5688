#include "app/exit_file.h"

#include <cstdlib>
#include <exception>

#include "base/log.h"
#include "io/files.h"

namespace loratrain {

ExitFile::ExitFile(const MpiSession& mpi) {
    const char* path = std::getenv("LORATRAIN_EXIT_FILE");
    if (path == nullptr || !mpi.is_root()) return;
    path_ = path;
    write("");
}

int ExitFile::leave(ExitCode code) const {
    const int number = static_cast<int>(code);
    write(cat(number, "\n"));
    return number;
}

void ExitFile::write(const std::string& text) const {
    if (path_.empty()) return;
    try {
        write_text_atomic(path_, text);
    } catch (const std::exception& error) {
        log::warn(error.what());
    }
}

}  // namespace loratrain
