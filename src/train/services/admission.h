#pragma once

#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Decides who trains: waiting adapters start as places become free, between streams and during
/// one. Decisions depend on planned steps, not on reported ones, so that they repeat. An adapter
/// needs an empty pipeline to start if
/// - a running adapter has to leave for it;
/// - its reference losses or the evaluation before its first step are not known;
/// - memory beside the resident adapters, or for copies, is short.
class AdmissionService : public Service {
  public:
    explicit AdmissionService(Worker& worker) : worker_(worker) {}

    void begin_stream() override;
    bool needs_drain(std::int32_t round) override;
    bool change(const Progress& planned, StreamChange& change) override;
    std::int32_t last_round(const Progress& planned) const override;
    std::int32_t next_event(const Progress& planned) const override;

    /// With an empty pipeline.
    void admit();
    /// With an empty pipeline: keeps these adapters in backend memory, for a while before the next
    /// admit(), and those that are there beside them if they fit.
    void hold(const std::vector<AdapterId>& adapters);
    /// One of several workers: places for further adapters beside its own, plus one. 0 while one of
    /// its own adapters waits.
    int places(const AdapterTable& table) const;
    /// The adapter leaves the stream before the next window for a while, to make room for others or
    /// as a trial at a rung.
    void pause(AdapterId adapter, const Progress& planned, StreamChange& change);

  private:
    std::int32_t rounds_to_event() const;
    std::vector<AdapterId> choose(AdapterTable& table) const;
    AdapterTable table_before(const Progress& planned, const StreamChange& change) const;
    bool admit_in_stream(const Progress& planned, StreamChange& change);
    bool may_begin(AdapterId adapter) const;
    void begin(AdapterId adapter, const Progress& planned, StreamChange& change);
    bool is_resident_still(AdapterId adapter) const;
    void release_ended(StreamChange& change) const;

    Worker& worker_;
    std::vector<AdapterId> admitted_;  ///< as ranks know them (AdmitAdapters)
};

}  // namespace loratrain
