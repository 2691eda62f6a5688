#pragma once

#include <string>

#include "base/error.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// How the program ended, for batch scripts: launchers may lose or change its exit code (srun ends
/// with 0 when a node cannot start its task). The file that LORATRAIN_EXIT_FILE names, if it is
/// set: empty once all ranks have started, at the end the exit code, also where the root rank ends
/// the job for all (MpiSession::abort). Written by the root rank; that it cannot be is only a
/// warning.
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

    std::string path_;  ///< "" = none is wanted from this rank
};

}  // namespace loratrain
