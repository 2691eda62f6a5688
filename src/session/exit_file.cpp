#include "session/exit_file.h"

#include "base/log.h"
#include "base/system.h"
#include "io/files.h"

namespace loratrain {

ExitFile::ExitFile(const MpiSession& mpi) {
    if (mpi.is_root()) path_ = environment("LORATRAIN_EXIT_FILE");
    write("");
    if (!path_.empty()) MpiSession::at_abort([this](int code) { write_code(code); });
}

ExitFile::~ExitFile() {
    if (!path_.empty()) MpiSession::at_abort({});
}

int ExitFile::leave(ExitCode code) const {
    const int number = static_cast<int>(code);
    write_code(number);
    return number;
}

void ExitFile::write_code(int code) const {
    write(cat(code, "\n"));
}

void ExitFile::write(const std::string& text) const {
    if (path_.empty()) return;
    warn_at_failure([&] { write_text_atomic(path_, text); });
}

}  // namespace loratrain
