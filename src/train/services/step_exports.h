#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "train/checkpoint/state_at_round.h"
#include "train/records/exports.h"
#include "train/worker.h"

namespace loratrain {

/// Exports adapters to exports/<name>/step-<n>/ before their first step and after every
/// export.every_steps of their steps (train/records/exports.h). Adapters train on meanwhile:
/// ranks send copies, and files are written on a thread of its own, one export after the other.
class StepExportService : public Service {
  public:
    explicit StepExportService(Worker& worker) : worker_(worker) {}

    /// True while an adapter lacks the export for which write_waiting() is there.
    bool needs_drain(std::int32_t round) override;
    std::int32_t next_event(const Progress& planned) const override;
    /// Asks ranks for copies of adapters that are due before the next window. False if the host has
    /// no memory for copies.
    bool change(const Progress& planned, StreamChange& change) override;
    void on_planning(std::int32_t round) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;
    void go_on() override;

    /// With an empty pipeline: exports those of `adapters` that are due and have no such export.
    void write_missing(const std::vector<AdapterId>& adapters);
    /// With an empty pipeline: also exports adapters that wait for rollouts, since the program that
    /// samples may wait for the export.
    void write_waiting();
    /// All exports of steps that the checkpoint has are written, of the copies that have come: a
    /// run that goes on from it does not write them again.
    bool written_for(const StateAtRound& state) const;
    /// Waits until all files are written.
    void finish();
    bool is_writing() const { return !waiting_.empty() || writing_.is_writing(); }

  private:
    struct Waiting {
        AdapterAtStep at;
        AdapterParts::ByRank values;
    };

    bool is_due(const AdapterAtStep& at) const;
    bool is_wanted(const AdapterAtStep& at) const;
    std::vector<AdapterId> waiting_for_rollouts() const;
    void write_next();

    Worker& worker_;
    std::vector<AdapterAtStep> asking_;           ///< with the window that is being planned
    std::set<AdapterAtStep> asked_;               ///< copies that ranks have not sent yet
    std::map<AdapterId, std::int32_t> exported_;  ///< newest step of this start
    std::deque<Waiting> waiting_;
    AdapterAtStep at_;           ///< is written last, or now
    BackgroundExports writing_;  ///< one at a time
};

}  // namespace loratrain
