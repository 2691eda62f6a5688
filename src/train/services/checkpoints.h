#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/state_at_round.h"
#include "train/worker.h"

namespace loratrain {

/// Decides when checkpoints are written, and collects their contents on rank 0; CheckpointWriter
/// (train/checkpoint/checkpoint_writer.h) writes the files. The pipeline is not drained: ranks copy
/// each adapter as soon as it has taken its last step before the checkpoint's round, and files are
/// written on threads of their own. The stream ends first if
/// - the checkpoint before is still being written;
/// - adapters that have ended have texts to write;
/// - the host has no memory for copies of all adapters. Then one adapter after the other is copied
///   and written.
class CheckpointService : public Service {
  public:
    explicit CheckpointService(Worker& worker)
        : worker_(worker), last_(std::chrono::steady_clock::now()) {}

    void begin_stream() override;
    bool needs_drain(std::int32_t round) override { return is_due(round) && !can_begin(round); }
    std::int32_t next_event(const Progress& planned) const override;
    void on_planning(std::int32_t round) override;
    void before_window(std::int32_t round, const std::vector<AdapterId>& stepped) override;
    void on_step(const BatchResult& result) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;
    void go_on() override;
    /// The table has the adapter's evaluation after `step` steps.
    void on_evaluated(AdapterId adapter, std::int32_t step);

    /// The stream has ended: waits for the checkpoint that is being written.
    void finish();
    bool is_due(std::int32_t round) const;
    bool is_due_by_time() const;
    /// With an empty pipeline: writes a checkpoint of this worker, and frees the memory of adapters
    /// that have ended. Returns the seconds that it took.
    double save();
    /// With an empty pipeline: writes a checkpoint of `adapters` only, with `state`, below `root`.
    void save(const std::vector<AdapterId>& adapters, const RunState& state,
              const std::string& root);

    /// Host memory would hold copies of everything that a checkpoint would keep now.
    bool copies_would_fit() const;
    /// A checkpoint is being written.
    bool is_writing() const { return writing_.has_value(); }
    /// No checkpoint is being written, or it has the adapter after `step` steps or more.
    bool has(AdapterId adapter, std::int32_t step) const {
        return !writing_ || step <= writing_->state.steps(adapter);
    }
    /// Adapters that had ended in the last checkpoint of the stream.
    const std::vector<AdapterId>& ended() const { return ended_; }
    std::vector<AdapterId> take_ended() { return std::exchange(ended_, {}); }

  private:
    /// The checkpoint that is being written.
    struct Writing {
        Writing(const RunParts& parts, std::int32_t round,
                const std::vector<StateAtRound::Goal>& goals, std::size_t parts_to_come)
            : state(round, goals),
              files(parts.job, parts.plan, parts.identity, round, parts.checkpoints),
              parts_left(parts_to_come) {}

        StateAtRound state;
        BackgroundCheckpoint files;
        std::size_t parts_left;  ///< parts of adapters that ranks have still to send
        bool completing = false;
    };

    bool can_begin(std::int32_t round) const;
    void begin(std::int32_t round);
    StateAtRound::Goal goal_at(std::int32_t round, AdapterId adapter) const;
    bool ends_are_decided() const;
    void end();
    void tell() const;

    Worker& worker_;
    std::chrono::steady_clock::time_point last_;
    bool begins_ = false;  ///< a checkpoint begins with the window that is being planned
    std::optional<Writing> writing_;
    BackgroundCheckpoint* files_now_ = nullptr;  ///< during save()
    std::vector<AdapterId> ended_;
};

}  // namespace loratrain
