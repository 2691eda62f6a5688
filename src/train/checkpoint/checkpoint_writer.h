#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "train/adapter_parts.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

/// Writes checkpoints.

/// Appends an adapter's tensors of one part, by the names under which they are stored.
void append_part(const StoredPart& part, std::vector<TensorSource> tensors,
                 std::vector<TensorSource>& stored);

/// Writes the files of a checkpoint, <root>/<round>/, in this order:
///   1. <root>/<round>.tmp/: a safetensors file per adapter (parameters, exp_avg, exp_avg_sq under
///      PEFT names) as its values come; then state.json, job.yaml, copies of best states (*.best),
///      and manifest.json with the checksum of every file: of adapters' files, what was written;
///   2. the folder is renamed to <round>;
///   3. LATEST is moved;
///   4. all but the newest `keep` are removed, and any of later rounds (left by a run that was set
///      back). One that cannot be removed stays till the next time, with a warning.
/// A job that dies meanwhile, or a full disk (Error), leaves older checkpoints as they were. What
/// has become of the new one is removed, after a death by the next writer. The files do not depend
/// on ranks. Who decides when: train/services/checkpoints.h. Rank 0 of a worker only, on any
/// thread; the job must not change meanwhile.
class CheckpointWriter {
  public:
    /// The arguments outlive it. `root`: "" = checkpoint_folder().
    CheckpointWriter(const Job& job, const RunIdentity& identity, std::int32_t round,
                     const std::string& root = "");
    /// Removes what was not completed.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    /// Writes the file of an adapter. `stored`: the tensors of all stored parts. Several threads
    /// may write files of different adapters.
    void write(AdapterId adapter, const std::vector<TensorSource>& stored,
               const AdapterBank::Counters& counters);
    /// Takes the file of an adapter that is released from the newest checkpoint: it has not changed
    /// since.
    void keep(AdapterId adapter);
    /// Steps 1 (the other files) to 4: from now on this is the newest checkpoint.
    void complete(const RunState& state);

  private:
    const Job& job_;
    const RunIdentity& identity_;
    std::filesystem::path folder_;
    std::filesystem::path target_;
    std::filesystem::path temporary_;
    std::optional<StoredFiles> stored_;  ///< once an adapter's file is kept
    std::mutex checksums_are_in_use_;
    std::map<std::string, std::string> checksums_;  ///< known already, by file name
};

/// Drives a CheckpointWriter on threads of its own: beside training one file after the other, else
/// files of adapters at the same time. Job, plan and identity must not change meanwhile. Rank 0 of
/// a worker only.
class BackgroundCheckpoint {
  public:
    /// The arguments outlive it. `root` as CheckpointWriter's.
    BackgroundCheckpoint(const Job& job, const Plan& plan, const RunIdentity& identity,
                         std::int32_t round, const std::string& root = "",
                         Beside beside = Beside::training);
    /// Waits for files that are being written.
    ~BackgroundCheckpoint();
    BackgroundCheckpoint(const BackgroundCheckpoint&) = delete;
    BackgroundCheckpoint& operator=(const BackgroundCheckpoint&) = delete;

    /// Takes a part of an adapter's state from all ranks of the first replica. With the last part
    /// the adapter's file is written.
    void add(const PartKey& key, AdapterParts::ByRank values,
             const AdapterBank::Counters& counters);
    /// CheckpointWriter::keep().
    void keep(AdapterId adapter);
    /// No parts follow: completes the checkpoint.
    void complete(RunState state);

    /// True if nothing is being written.
    bool idle() const;
    /// Waits until at most so many files are being written, and rethrows what writing threw.
    void wait_for_all_but(std::size_t files);
    /// Waits until idle(), and rethrows what writing threw. Returns the seconds that writing took,
    /// of all files together.
    double finish();

  private:
    /// `beside_others`: it need not wait for what is being written.
    void write(std::function<void()> work, bool beside_others = false);

    const Job& job_;
    const Plan& plan_;
    CheckpointWriter writer_;
    Beside beside_;
    std::map<AdapterId, std::map<StatePart, AdapterParts::ByRank>> parts_;
    std::atomic<double> seconds_ = 0.0;
    std::vector<std::shared_future<void>> writing_;  ///< in the order of their beginning
};

}  // namespace loratrain
