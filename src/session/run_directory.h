#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/version.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "io/files.h"
#include "io/locks/file_lock.h"
#include "plan/plan.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain {

/// Every library that this program uses, for `--version` and provenance.json.
std::vector<Library> all_libraries();

/// <run.dir> while this job lives in it: locked, checked to belong to this job. Root rank only.
class RunDirectory {
  public:
    /// Creates the directory where needed, locks it and decides where to start. Throws InputError:
    /// not writable, in use by a live job, belongs to a different job (differences listed), was
    /// trained by workers and is not any more. For a job of workers no checkpoint is looked for
    /// (find_former_run). With
    /// Restart::never, what a former run left is moved to <run.dir>/before-TIME, a run directory of
    /// its own; only the log is carried on, and measured costs hold for the new run too. From then
    /// on the log goes to loratrain.log too; it says when the lock of a dead job is taken over and
    /// which damaged checkpoints are passed by.
    RunDirectory(const Job& job, const Plan& plan, const CommandLine& command_line,
                 const RunIdentity& identity);

    /// Checkpoint to continue from; "" = start at step 0.
    std::string checkpoint() const;
    /// It may be older than the newest one (asked for, or newer ones are damaged).
    bool set_back() const;

    /// resolved.yaml, plan.yaml and provenance.json.
    void write_records(const Job& job, const Plan& plan, const RunIdentity& identity,
                       const MpiSession& mpi, const std::string& command,
                       const std::string& backend, const std::string& devices) const;
    /// Adds how the run ended to provenance.json.
    void write_end(const std::string& reason) const;

  private:
    void report_what_happened_before() const;
    void move_former_run_aside() const;

    std::string dir_;
    std::optional<FileLock> lock_;
    std::optional<FoundCheckpoint> found_;
};

}  // namespace loratrain
