#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "train/adapter_parts.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

/// Appends an adapter's tensors of one part, by the names under which they are stored.
void append_part(const StoredPart& part, std::vector<NamedTensor> tensors,
                 std::vector<NamedTensor>& stored);

/// Writes a checkpoint, <root>/<round>/, in this order:
///   1. <root>/<round>.tmp/: a safetensors file per adapter (parameters, exp_avg, exp_avg_sq under
///      PEFT names) as its values come; then state.json, job.yaml, copies of best states (*.best),
///      and manifest.json with the checksum of every file;
///   2. the folder is renamed to <round>;
///   3. LATEST is moved;
///   4. all but the newest `keep` are removed, and any of later rounds (left by a run that was set
///      back). One that cannot be removed stays till the next time, with a warning.
/// A job that dies in it, or a full disk (Error), leaves the checkpoints before it as they were.
/// The files do not depend on ranks. Rank 0 of a worker only; on any thread, while the job does not
/// change.
class CheckpointWriter {
  public:
    /// The arguments outlive it. `root`: "" = checkpoint_folder().
    CheckpointWriter(const Job& job, const RunIdentity& identity, std::int32_t round,
                     const std::string& root = "");

    /// `stored`: the tensors of all stored parts.
    void write(AdapterId adapter, const std::vector<NamedTensor>& stored,
               const AdapterBank::Counters& counters);
    /// One that is released has not changed since the newest checkpoint.
    void keep(AdapterId adapter);
    /// From now on this is the newest checkpoint. `state`: of the round.
    void complete(const RunState& state);

  private:
    const Job& job_;
    const RunIdentity& identity_;
    std::filesystem::path folder_;
    std::filesystem::path target_;
    std::filesystem::path temporary_;
};

/// Writes a checkpoint (CheckpointWriter) on threads of its own, one file after the other, while
/// others train. Root only. Job, plan and identity must not change meanwhile.
class BackgroundCheckpoint {
  public:
    /// The arguments outlive it. `root` as CheckpointWriter's.
    BackgroundCheckpoint(const Job& job, const Plan& plan, const RunIdentity& identity,
                         std::int32_t round, const std::string& root = "");
    /// Waits for what is being written.
    ~BackgroundCheckpoint();
    BackgroundCheckpoint(const BackgroundCheckpoint&) = delete;
    BackgroundCheckpoint& operator=(const BackgroundCheckpoint&) = delete;

    /// What all ranks of the first replica have of a part of an adapter's state. With the last
    /// part the adapter's file is written.
    void add(const PartKey& key, AdapterParts::ByRank values,
             const AdapterBank::Counters& counters);
    /// One that is released.
    void keep(AdapterId adapter);
    /// With this all is known: no parts follow.
    void complete(RunState state);

    /// Nothing is being written any more.
    bool idle() const;
    /// Waits until it is; rethrows what writing threw. Returns the seconds that writing took.
    double finish();

  private:
    void write(std::function<void()> work);

    const Job& job_;
    const Plan& plan_;
    CheckpointWriter writer_;
    std::map<AdapterId, std::map<StatePart, AdapterParts::ByRank>> parts_;
    double seconds_ = 0.0;
    std::future<void> writing_;
};

}  // namespace loratrain
