#pragma once

#include <optional>
#include <string>

#include "mpi/mpi_main.h"
#include "support/files.h"

namespace loratrain::mpi_test {

/// A directory of its own that all ranks use, removed at the end. Collective.
class SharedTempDir {
  public:
    SharedTempDir() {
        if (session().is_root()) made_.emplace();
        path_ = broadcast_text(session(), made_ ? made_->path() : "");
    }
    ~SharedTempDir() { barrier(session()); }
    SharedTempDir(const SharedTempDir&) = delete;
    SharedTempDir& operator=(const SharedTempDir&) = delete;

    const std::string& path() const { return path_; }

  private:
    std::optional<test::TempDir> made_;  ///< the root's
    std::string path_;
};

}  // namespace loratrain::mpi_test
