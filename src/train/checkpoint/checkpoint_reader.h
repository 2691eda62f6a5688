#pragma once

#include <optional>
#include <string>

#include "config/job_yaml.h"
#include "train/checkpoint/adapter_transfer.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// What must agree between the run that wrote a checkpoint and the one that continues it.
struct RunIdentity {
    std::string job_yaml;                     ///< to_yaml(job)
    std::string weights_checksum;             ///< WeightSource::checksum()
    std::vector<std::string> data_checksums;  ///< per DatasetId, training files
    std::vector<std::string> eval_checksums;  ///< per DatasetId, "" = none; may differ
    BackendsOfAuto backends{};                ///< of the run before, and now
};

struct FoundCheckpoint {
    std::string path;
    bool set_back = false;             ///< newer ones may exist, asked away or damaged
    std::vector<std::string> damaged;  ///< newer ones that cannot be used: path and reason
    std::string note;                  ///< where LATEST says another round than it should
};

/// The checkpoint to continue from: `asked` (a path), or with "" the newest undamaged one of
/// <run.dir>/ckpt: the one that LATEST names, then those before it, then later ones, which a run
/// that was set back has left; the newest of all where there is none of the name. Root only. None
/// when there is none (asked = ""); InputError when it is damaged (checksums, or contents that this
/// job cannot have left; asked =
/// "": when all are), was written by a job that differs in a harmful key (the differences are
/// listed), or for other weights or data; an UnreadableFile is no damage, but ends the search.
/// Datasets added at the end are no difference. One that is of another run beside one before
/// it that is of this run is damaged. Of `plan` the model and the adapters are used.
std::optional<FoundCheckpoint> find_checkpoint(const Job& job, const Plan& plan,
                                               const RunIdentity& identity,
                                               const std::string& asked);

/// The newest undamaged one of `root`, as find_checkpoint.
std::optional<FoundCheckpoint> newest_checkpoint(const std::string& root, const Job& job,
                                                 const Plan& plan, const RunIdentity& identity);

/// What the checkpoint in directory `path` says of adapters.
RunState stored_state(const std::string& path, const Job& job);

/// All complete ones of `root`; a process that dies in it leaves no part of one under its name.
void remove_checkpoints(const std::string& root);
/// The same for a directory of any kind.
void remove_at_once(const std::string& directory);

/// Loads the bank's part, of a stage and lane, of every adapter that has a file in checkpoint
/// directory `path`, those that are not resident into host memory; returns the state. InputError
/// when an adapter that has taken steps, and is no trial that has ended, has no file.
RunState load_checkpoint(const std::string& path, const Job& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterBank& bank);

}  // namespace loratrain
