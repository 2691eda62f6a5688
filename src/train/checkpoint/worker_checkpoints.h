#pragma once

#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain {

/// Checkpoints of a run whose adapters train on workers. Each worker of each start of the run has a
/// root of its own, <run.dir>/ckpt/start-<n>-worker-<i>, whose checkpoints (checkpoint_reader.h)
/// hold the adapters that it had then. So what former starts have left stays until this one has
/// saved it too, whatever the number of workers then and now. Likewise what adapters that move to
/// another worker have come to: it is in a root of that move until a worker's checkpoint has it.

/// What a checkpoint holds of a former start, or of a move.
struct FormerCheckpoint {
    std::string root;                 ///< of which it is the newest
    std::string path;                 ///< its directory
    std::vector<std::int32_t> steps;  ///< per AdapterId; 0 = it has no file of it
};

/// What all former starts have come to.
struct FormerRun {
    int starts = 0;                        ///< by workers
    RunState state;                        ///< of each adapter the entry with most steps
    std::vector<std::string> checkpoints;  ///< per AdapterId, the directory it is from; "" = none
    std::vector<FormerCheckpoint> stored;
    std::vector<std::string> damaged;  ///< as FoundCheckpoint's
    std::vector<std::string> notes;    ///< likewise
};

/// Root of a worker's checkpoints.
std::string worker_checkpoint_root(const Job& job, int start, int worker);
/// Root of the checkpoint in which adapters leave the worker, its `move`-th.
std::string move_checkpoint_root(const std::string& worker_root, int move);

/// Whether <run.dir> holds checkpoints of workers.
bool has_worker_checkpoints(const Job& job);

/// Also of starts without workers. Errors as find_checkpoint.
FormerRun find_former_run(const Job& job, const Plan& plan, const RunIdentity& identity);

/// Those of former starts, and of moves, of which everything is in newer ones or has ended are
/// removed.
class FormerCheckpoints {
  public:
    explicit FormerCheckpoints(std::vector<FormerCheckpoint> stored) : stored_(std::move(stored)) {}

    /// The adapter moves, after so many steps, with the checkpoint in directory `path`.
    void add(const std::string& path, AdapterId adapter, std::int32_t steps);

    /// `saved`: per AdapterId, the steps that checkpoints of this start hold; most_steps of those
    /// that have ended and are recorded.
    void remove_superseded(const std::vector<std::int32_t>& saved);

  private:
    std::vector<FormerCheckpoint> stored_;
};

}  // namespace loratrain
