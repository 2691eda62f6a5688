#include "session/exit_file.h"

#include "base/system.h"
#include "base/warn_at_failure.h"
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
    warn_at_failure([&] { write_text_atomic(path_, text); });
}

}  // namespace loratrain
