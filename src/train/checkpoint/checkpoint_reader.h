#pragma once

#include <optional>
#include <string>

#include "config/job_yaml.h"
#include "train/checkpoint/adapter_transfer.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Finds and loads checkpoints.

/// What has to be equal in the run that wrote a checkpoint and the run that continues it.
struct RunIdentity {
    std::string job_yaml;                     ///< to_yaml(job)
    std::string weights_checksum;             ///< WeightSource::checksum()
    std::vector<std::string> data_checksums;  ///< per DatasetId, training files
    std::vector<std::string> eval_checksums;  ///< per DatasetId, "" = none; may differ
    BackendsOfAuto backends{};                ///< of the former run and of this one
};

struct FoundCheckpoint {
    std::string path;
    bool set_back = false;             ///< newer checkpoints may exist: passed over or damaged
    std::vector<std::string> damaged;  ///< newer checkpoints that cannot be used: path and reason
    std::string note;                  ///< not "" if LATEST names another round than it should
};

/// Finds the checkpoint to continue from: `asked` (a path), or with "" the newest undamaged one of
/// <run.dir>/ckpt. It tries the one that LATEST names, then earlier ones, then later ones, which a
/// run that was set back has left; without LATEST the newest first. None if there is none (asked =
/// ""). InputError if
/// - it is damaged: wrong checksums, or contents that this job cannot have left (asked = "": all
///   are);
/// - it is of a job that differs in a harmful key (the message lists the differences);
/// - it is for other weights or data. Datasets added at the end are no difference.
/// A checkpoint of another run counts as damaged if an earlier one is of this run. An
/// UnreadableFile ends the search. `plan`: its model and adapters are used. Root only.
std::optional<FoundCheckpoint> find_checkpoint(const Job& job, const Plan& plan,
                                               const RunIdentity& identity,
                                               const std::string& asked);

/// The newest undamaged checkpoint of the folder `root`, as find_checkpoint.
std::optional<FoundCheckpoint> newest_checkpoint(const std::string& root, const Job& job,
                                                 const Plan& plan, const RunIdentity& identity);

/// The run's state in the checkpoint directory `path`.
RunState stored_state(const std::string& path, const Job& job);

/// Removes all complete checkpoints of `root`. A process that dies meanwhile leaves no part of a
/// checkpoint under its name.
void remove_checkpoints(const std::string& root);
/// Removes a directory of any kind in the same way.
void remove_at_once(const std::string& directory);

/// Loads a stage and lane's part of every adapter that has a file in checkpoint directory `path`
/// into the bank; adapters that are not resident go to host memory. Returns the run's state.
/// InputError if an adapter that has taken steps has no file, unless it is a trial that has ended.
RunState load_checkpoint(const std::string& path, const Job& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterBank& bank);

}  // namespace loratrain
