#include "app/exit_file.h"

#include <exception>

#include "base/log.h"
#include "base/system.h"
#include "io/files.h"

namespace loratrain {

ExitFile::ExitFile(const MpiSession& mpi) {
    if (mpi.is_root()) path_ = environment("LORATRAIN_EXIT_FILE");
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
