#pragma once

#include <string>

#include "comm/mpi_session.h"

namespace loratrain {

/// MPI from start-up to shutdown; one per process. Construction and destruction are collective over
/// all processes of the program.
class MpiRuntime {
  public:
    MpiRuntime(int* argc, char*** argv);

    /// All ranks of the program.
    const MpiSession& world() const { return world_; }
    /// "Open MPI v4.1.4"
    static std::string library_version();

  private:
    struct Library {
        Library(int* argc, char*** argv);
        ~Library();
        Library(const Library&) = delete;
        Library& operator=(const Library&) = delete;
    };

    Library library_;
    MpiSession world_;
};

}  // namespace loratrain
