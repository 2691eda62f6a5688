#include "train/stream_planner.h"

#include "base/error.h"
#include "base/system.h"
#include "base/threads.h"
#include "train/command.h"

namespace loratrain {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

StreamPlanner::StreamPlanner(const Job& job, const Plan& plan,
                             std::span<const DatasetInfo> datasets, const Progress& start,
                             int threads, ScheduleStream::Evaluations evaluations,
                             PlanningRecord& record)
    : stream_(job, plan, datasets, start, threads, evaluations), record_(record) {
    ++record_.streams;
}

StreamPlanner::~StreamPlanner() {
    if (future_.valid()) future_.wait();
    record_.fillings.add(stream_.fillings());
}

void StreamPlanner::change(const StreamChange& change) {
    LORATRAIN_CHECK(!future_.valid(), "a window is under way");
    for (const AdapterId adapter : change.ended) stream_.end(adapter);
    for (const AdapterId adapter : change.paused) stream_.pause(adapter);
    for (const AdapterId adapter : change.begun) {
        const auto& known = change.known;
        stream_.begin(adapter, std::find(known.begin(), known.end(), adapter) != known.end());
    }
    if (change.stops) stream_.stop_at(*change.stops);
}

void StreamPlanner::await(std::vector<AdapterId> adapters) {
    LORATRAIN_CHECK(!future_.valid(), "a window is under way");
    stream_.await(std::move(adapters));
}

void StreamPlanner::grow(std::span<const DatasetInfo> datasets) {
    LORATRAIN_CHECK(!future_.valid(), "a window is under way");
    stream_.grow(datasets);
}

void StreamPlanner::start(std::int32_t rounds, bool drain) {
    LORATRAIN_CHECK(!future_.valid(), "a window is under way");
    future_ = std::async(std::launch::async, [this, rounds, drain] {
        const BackgroundWork background;
        const Clock::time_point start = Clock::now();
        WorkerCommand train = TrainWindow{stream_.next(rounds, drain)};
        std::string text = to_bytes(train);
        planned_seconds_ = seconds_since(start);
        return PlannedWindow{std::move(std::get<TrainWindow>(train).window), std::move(text)};
    });
}

bool StreamPlanner::ready() const {
    return future_.valid() &&
           future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

PlannedWindow StreamPlanner::take() {
    const Clock::time_point start = Clock::now();
    PlannedWindow planned = future_.get();
    record_.waited_seconds += seconds_since(start);
    record_.seconds += planned_seconds_;
    ++record_.windows;
    return planned;
}

}  // namespace loratrain
