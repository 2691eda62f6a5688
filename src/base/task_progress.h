#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// How far a long task has come, and how long the phases of a task took.

/// "writing base.h5: 34%, 5.1 of 15.0 GiB, 104.9 MiB/s, 1 min 37 s left": `done` of `bytes` bytes
/// after `seconds`. bytes = 0: the total is not known, and only what is done is reported.
std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t bytes,
                          double seconds);

/// Reports the progress of a long task on the root rank: on a terminal as a line that is redrawn in
/// place; elsewhere, and beside a live table (log.h), as lines of the log. A short task shows
/// nothing.
class TaskProgress {
  public:
    struct Times {
        double first_drawn = 2.0;  ///< seconds from the task's start
        double between_drawn = 0.2;
        double first_line = 10.0;
        double between_lines = 30.0;
    };

    /// `bytes`: of the whole task; 0 = not known.
    TaskProgress(std::string what, std::uint64_t bytes);
    TaskProgress(std::string what, std::uint64_t bytes, Times times);
    /// Removes the drawn line.
    ~TaskProgress();
    TaskProgress(const TaskProgress&) = delete;
    TaskProgress& operator=(const TaskProgress&) = delete;

    /// `bytes` more are done. Call it on the thread that made the object.
    void add(std::uint64_t bytes);

  private:
    void show(double seconds);

    std::string what_;
    std::uint64_t bytes_;
    Times times_;
    std::uint64_t done_ = 0;
    bool may_draw_;
    bool draws_ = false;
    double next_;  ///< seconds from the start at which to show it
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Durations of phases that follow each other; the first begins at construction.
class PhaseTimes {
  public:
    /// Ends a phase, which began when the phase before ended. Phases of one name are added up.
    void end(const std::string& phase);
    void add(const std::string& phase, double seconds);

    /// Seconds of a phase; 0 if there is none of this name.
    double of(const std::string& phase) const;
    double total() const;

    /// "12.3 s: costs 6.2, weights 5.0": the sum of all phases, and those of at least 0.1 s.
    std::string text() const;

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    std::vector<std::pair<std::string, double>> phases_;
};

}  // namespace loratrain
