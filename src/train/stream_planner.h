#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "plan/schedule/schedule_stream.h"
#include "train/adapter_parts.h"

namespace loratrain {

/// A window, and the bytes of the command to train it (command.h).
struct PlannedWindow {
    JointWindow window;
    std::string command;
};

/// Who comes and goes between two windows.
struct StreamChange {
    std::vector<AdapterId> ended;     ///< that have steps left (ScheduleStream::end)
    std::vector<AdapterId> paused;    ///< ScheduleStream::pause
    std::vector<AdapterId> begun;     ///< ScheduleStream::begin
    std::vector<AdapterId> known;     ///< of them: evaluated before
    std::vector<AdapterId> resident;  ///< where any begin: all that are in backend memory then
    std::vector<AdapterId> released;  ///< before: whose memory is given back
    std::vector<AdapterAtStep> kept;  ///< evaluated before: parameters of which copies are made
    std::optional<Progress> stops;    ///< ScheduleStream::stop_at
};

/// What has been planned, how long that took, and how much of it training had to wait for.
struct PlanningRecord {
    int streams = 0;
    int windows = 0;
    double seconds = 0.0;
    double waited_seconds = 0.0;
    FillingCounts fillings;  ///< of ended streams
};

/// Plans the windows of a stream, each on a thread of its own while the one before trains. What it
/// is made of must not change as long as it lives, but as grow() says.
class StreamPlanner {
  public:
    StreamPlanner(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                  const Progress& start, int threads, ScheduleStream::Evaluations evaluations,
                  PlanningRecord& record);
    ~StreamPlanner();
    StreamPlanner(const StreamPlanner&) = delete;
    StreamPlanner& operator=(const StreamPlanner&) = delete;

    /// Before the next window; none may be under way, and it must have rounds.
    void change(const StreamChange& change);
    /// ScheduleStream::await, of the next window; none may be under way.
    void await(std::vector<AdapterId> adapters);
    /// ScheduleStream::grow; none may be under way.
    void grow(std::span<const DatasetInfo> datasets);
    /// Starts on the next window (ScheduleStream::next); the one before must have been taken.
    void start(std::int32_t rounds, bool drain);
    /// The window under way is done: take() would not wait.
    bool ready() const;
    /// Waits for the window; rethrows what its planning threw.
    PlannedWindow take();

    /// That the window taken last took.
    double planning_seconds() const { return planned_seconds_; }
    /// Where the next window begins; none may be under way.
    const Progress& progress() const { return stream_.progress(); }
    std::int32_t round() const { return stream_.round(); }

  private:
    ScheduleStream stream_;
    PlanningRecord& record_;
    double planned_seconds_ = 0.0;
    std::future<PlannedWindow> future_;
};

}  // namespace loratrain
