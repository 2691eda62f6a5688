#pragma once

#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain {

/// Checkpoints of a run by several workers. Each worker of each start has its own root folder,
/// <run.dir>/ckpt/start-<n>-worker-<i>, whose checkpoints (checkpoint_reader.h) hold the adapters
/// that it had then. So checkpoints of former starts stay until this start has saved their
/// adapters, whatever the number of workers then and now. An adapter that moves to another worker
/// is kept in a root of that move until a worker's checkpoint has it.

/// The checkpoint of a former start or of a move.
struct FormerCheckpoint {
    std::string root;                 ///< its folder; it is the newest there
    std::string path;                 ///< its directory
    std::vector<std::int32_t> steps;  ///< per AdapterId; 0 = no file
};

/// The result of all former starts.
struct FormerRun {
    int starts = 0;                        ///< starts with workers
    RunState state;                        ///< per adapter the entry with most steps
    std::vector<std::string> checkpoints;  ///< per AdapterId: directory of that entry; "" = none
    std::vector<FormerCheckpoint> stored;
    std::vector<std::string> damaged;  ///< as FoundCheckpoint::damaged
    std::vector<std::string> notes;    ///< as FoundCheckpoint::note
};

/// Root folder of a worker's checkpoints.
std::string worker_checkpoint_root(const Job& job, int start, int worker);
/// Root folder of the checkpoint in which adapters leave the worker for the `move`-th time.
std::string move_checkpoint_root(const std::string& worker_root, int move);

/// True if <run.dir> holds checkpoints of workers.
bool has_worker_checkpoints(const Job& job);

/// Finds the state of all former starts, with and without workers. Errors as find_checkpoint.
FormerRun find_former_run(const Job& job, const Plan& plan, const RunIdentity& identity);

/// Removes checkpoints of former starts and of moves once newer ones hold all their unfinished
/// adapters.
class FormerCheckpoints {
  public:
    explicit FormerCheckpoints(std::vector<FormerCheckpoint> stored) : stored_(std::move(stored)) {}

    /// The adapter moves after `steps` steps with the checkpoint in directory `path`.
    void add(const std::string& path, AdapterId adapter, std::int32_t steps);

    /// `saved`: per AdapterId, the steps in checkpoints of this start; most_steps for adapters that
    /// have ended and are recorded.
    void remove_superseded(const std::vector<std::int32_t>& saved);

  private:
    std::vector<FormerCheckpoint> stored_;
};

}  // namespace loratrain
