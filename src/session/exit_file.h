#pragma once

#include <string>

#include "base/error.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// The file that LORATRAIN_EXIT_FILE names (if set), with the exit code for batch scripts, since
/// launchers may lose or change it: srun ends with 0 if a node cannot start its task. The file is
/// empty once all ranks have started, and has the exit code at the end, also if the root rank ends
/// the job for all (MpiSession::abort). The root rank writes it; an error is only a warning.
class ExitFile {
  public:
    explicit ExitFile(const MpiSession& mpi);
    ~ExitFile();
    ExitFile(const ExitFile&) = delete;
    ExitFile& operator=(const ExitFile&) = delete;

    /// Writes the code and returns it for main().
    int leave(ExitCode code) const;

  private:
    void write_code(int code) const;
    void write(const std::string& text) const;

    std::string path_;  ///< "" = this rank writes no file
};

}  // namespace loratrain
