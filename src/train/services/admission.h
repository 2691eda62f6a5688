#pragma once

#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Who trains: adapters that wait come as places become free, between streams and while one goes
/// on. What is decided depends on the steps that are planned, not on those that have been reported,
/// so that it repeats. Some adapters come with an empty pipeline alone: where a place has to be
/// left for them, their references or what their base comes to are not known, or memory beside what
/// is resident, or for copies, is short.
class AdmissionService : public Service {
  public:
    explicit AdmissionService(Worker& worker) : worker_(worker) {}

    void begin_stream() override;
    bool change(const Progress& planned, StreamChange& change) override;
    std::int32_t last_round(const Progress& planned) const override;
    std::int32_t next_event(const Progress& planned) const override;

    /// With an empty pipeline.
    void admit();
    /// One of several workers: adapters of others that could train beside those that it owns, and
    /// one more; none while one of its own waits.
    int places(const AdapterTable& table) const;
    /// The adapter leaves the stream before the next window for a while: it makes room for others,
    /// or is a trial at a rung.
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
    std::vector<AdapterId> admitted_;  ///< that were announced to ranks last
};

}  // namespace loratrain
