#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/version.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "io/files.h"
#include "io/locks/file_lock.h"
#include "io/run_files/run_account.h"
#include "plan/plan.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain {

/// The run directory, locked for one run.

/// All libraries that this program uses, for `--version` and provenance.json.
std::vector<Library> all_libraries();

/// The run directory <run.dir>, locked, and checked to belong to this job. Root rank only.
class RunDirectory {
  public:
    /// Creates the directory if needed, locks it and decides where to start; a job of workers looks
    /// for checkpoints elsewhere (find_former_run). From then on the log also goes to
    /// loratrain.log; it reports damaged checkpoints that are passed over, and the lock of a dead
    /// job. With Restart::never the files of a former run move to <run.dir>/before-TIME, a run
    /// directory of its own; the log continues, and measured costs stay. InputError: not writable;
    /// in use by a live job; of a different job (differences listed); it was trained by workers,
    /// and this job is not; another run has written into the folder of an adapter with rewards.
    RunDirectory(const Job& job, const Plan& plan, const CommandLine& command_line,
                 const RunIdentity& identity);

    /// Checkpoint to continue from; "" = start at step 0.
    std::string checkpoint() const;
    /// True if newer checkpoints may exist: an older one was asked for, or newer ones are damaged.
    bool set_back() const;

    /// Writes resolved.yaml, plan.yaml and provenance.json.
    void write_records(const Job& job, const Plan& plan, const RunIdentity& identity,
                       const MpiSession& mpi, const std::string& command,
                       const std::string& backend, const std::string& devices) const;
    /// Writes to provenance.json where the time of this start went so far, and the sum over all
    /// starts. Not flushed to disk, which may take long.
    void write_account(const RunAccount& account) const;
    /// The same at the end, and how the start ended; returns the accounts of all starts.
    std::vector<RunAccount> write_end(const std::string& reason, const RunAccount& account) const;
    /// Adds predicted and measured time of training to provenance.json (MakespanCheck::text()).
    void write_prediction(const std::string& text) const;

  private:
    void report_what_happened_before() const;
    void move_former_run_aside() const;
    void check_rollouts_elsewhere(const Job& job, bool begins_anew) const;
    std::string rollout_folder(const AdapterJob& adapter) const;
    void make_rollout_folders(const Job& job) const;

    std::string dir_;
    std::optional<FileLock> lock_;
    std::optional<FoundCheckpoint> found_;
};

/// What the newest start in `dir` that has it wrote with write_prediction(); "" = none did.
std::string last_prediction(const std::string& dir);

}  // namespace loratrain
