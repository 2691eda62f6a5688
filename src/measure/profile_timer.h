#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/system.h"
#include "measure/median.h"

namespace loratrain {

/// Times work on a backend within a budget of seconds.

/// Time that a profile of costs may take. Defaults are for a processor.
struct ProfileEffort {
    /// After so many the rest keeps its built-in costs.
    double wall_seconds = std::numeric_limits<double>::infinity();
    double budget_seconds = 0.4;  ///< on the device, without choosing GEMM algorithms
    double hot_seconds = 0.0;     ///< of work until a GPU's clock is at what it can sustain
};

/// Times pieces of work on a backend within a budget of time. On a GPU the first run of a piece,
/// which chooses GEMM algorithms, does not count against the budget: training needs them too.
class ProfileTimer {
  public:
    /// `backend` outlives it. Wall-clock time counts from now on.
    ProfileTimer(Backend& backend, const ProfileEffort& effort)
        : backend_(backend), effort_(effort), clock_(backend.make_clock()) {}

    bool out_of_time() const { return seconds_since(begin_) > effort_.wall_seconds; }

    /// Whether to stop after `count` loads: there is no time, or it is late and there are `wanted`.
    bool must_do(std::size_t count, std::size_t wanted) const {
        return count > 0 && (too_late() || (late() && count >= wanted));
    }

    /// Median seconds of each part of a piece of work: work(0), work(1) and so on. The first run
    /// warms up and counts only if there is no time for a second.
    template <std::size_t parts, class Work>
    std::array<double, parts> repeat(const Work& work);

    /// Seconds of work() on an idle backend.
    template <class Work>
    double seconds_alone(const Work& work) const;

    /// On a GPU: repeats the parts for `hot_seconds`.
    template <std::size_t parts, class Work>
    void heat(const Work& work) const;

  private:
    static constexpr double limit_seconds = 15.0;
    static constexpr int repeats = 3;

    bool late() const { return spent_seconds_ > effort_.budget_seconds; }
    bool too_late() const { return spent_seconds_ > limit_seconds || out_of_time(); }
    /// Whether there is time for one more after `times`; the first of them only warms up.
    bool may_repeat(int times) const { return times == 0 || (times == 1 ? !too_late() : !late()); }
    bool on_gpu() const { return backend_.native_stream() != nullptr; }

    Backend& backend_;
    ProfileEffort effort_;
    std::unique_ptr<StreamClock> clock_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    double spent_seconds_ = 0.0;
};

template <std::size_t parts, class Work>
std::array<double, parts> ProfileTimer::repeat(const Work& work) {
    std::array<std::vector<double>, parts> seconds;
    for (int i = 0; i <= repeats && may_repeat(i); ++i) {
        if (i == 1) {
            for (auto& of_part : seconds) of_part.clear();
        }
        backend_.synchronize();
        clock_->mark();
        for (std::size_t part = 0; part < parts; ++part) {
            work(part);
            clock_->mark();
        }
        const std::vector<double> points = clock_->read();
        if (i > 0 || !on_gpu()) spent_seconds_ += points.back();
        for (std::size_t part = 0; part < parts; ++part) {
            seconds[part].push_back(points[part + 1] - points[part]);
        }
    }
    std::array<double, parts> result{};
    for (std::size_t part = 0; part < parts; ++part) result[part] = median(seconds[part]);
    return result;
}

template <class Work>
double ProfileTimer::seconds_alone(const Work& work) const {
    backend_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    work();
    backend_.synchronize();
    return seconds_since(start);
}

template <std::size_t parts, class Work>
void ProfileTimer::heat(const Work& work) const {
    if (!on_gpu()) return;
    const auto start = std::chrono::steady_clock::now();
    while (seconds_since(start) < effort_.hot_seconds) {
        for (std::size_t part = 0; part < parts; ++part) work(part);
        backend_.synchronize();
    }
}

}  // namespace loratrain
