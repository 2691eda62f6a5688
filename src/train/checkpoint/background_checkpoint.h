#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <string>

#include "train/adapter_parts.h"
#include "train/checkpoint/checkpoint_writer.h"

namespace loratrain {

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
