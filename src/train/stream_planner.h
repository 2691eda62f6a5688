#pragma once

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "plan/schedule/schedule_stream.h"
#include "train/adapter_parts.h"

namespace loratrain {

/// A window, and the command to train it as bytes (command.h).
struct PlannedWindow {
    JointWindow window;
    std::string command;
};

/// Adapters that come and go between two windows.
struct StreamChange {
    std::vector<AdapterId> ended;           ///< they have steps left (ScheduleStream::end)
    std::vector<AdapterId> paused;          ///< ScheduleStream::pause
    std::vector<AdapterId> begun;           ///< ScheduleStream::begin
    std::vector<AdapterId> known;           ///< adapters of `begun` that were evaluated before
    std::vector<AdapterId> resident;        ///< if any begin: all in backend memory from then on
    std::vector<AdapterId> released;        ///< their memory is freed first
    std::vector<AdapterAtStep> kept;        ///< their parameters are copied first
    std::vector<AdapterAtStep> begun_kept;  ///< of `begun`: copied once they are resident
    std::optional<Progress> stops;          ///< ScheduleStream::stop_at

    void keep(const AdapterAtStep& at) {
        if (std::find(kept.begin(), kept.end(), at) == kept.end()) kept.push_back(at);
    }
};

/// How much was planned, how long it took, and how long training waited for it.
struct PlanningRecord {
    int streams = 0;
    int windows = 0;
    double seconds = 0.0;
    double waited_seconds = 0.0;
    FillingCounts fillings;  ///< blocks of ended streams
};

/// Plans the windows of a stream, each on a thread of its own while the window before trains. Job,
/// plan and datasets must not change during its life except as grow() says.
class StreamPlanner {
  public:
    StreamPlanner(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                  const Progress& start, int threads, ScheduleStream::Evaluations evaluations,
                  PlanningRecord& record);
    ~StreamPlanner();
    StreamPlanner(const StreamPlanner&) = delete;
    StreamPlanner& operator=(const StreamPlanner&) = delete;

    /// Changes who trains from the next window on. That window must have rounds. No window may be
    /// in planning.
    void change(const StreamChange& change);
    /// ScheduleStream::await for the next window. No window may be in planning.
    void await(std::vector<AdapterId> adapters);
    /// ScheduleStream::grow. No window may be in planning.
    void grow(std::span<const DatasetInfo> datasets);
    /// Starts to plan the next window (ScheduleStream::next). The window before must be taken.
    void start(std::int32_t rounds, bool drain);
    /// True if take() would not wait.
    bool ready() const;
    /// Waits for the window. Rethrows an exception of its planning.
    PlannedWindow take();

    /// Seconds of planning of the window that was taken last.
    double planning_seconds() const { return planned_seconds_; }
    /// Where the next window begins. No window may be in planning.
    const Progress& progress() const { return stream_.progress(); }
    std::int32_t round() const { return stream_.round(); }

  private:
    ScheduleStream stream_;
    PlanningRecord& record_;
    double planned_seconds_ = 0.0;
    std::future<PlannedWindow> future_;
};

}  // namespace loratrain
