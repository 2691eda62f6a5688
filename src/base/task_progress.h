#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace loratrain {

/// "writing base.h5: 34%, 5.1 of 15.0 GiB, 104.9 MiB/s, 1 min 37 s left": after so many seconds of
/// a task of so many bytes, 0 = not known.
std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t bytes,
                          double seconds);

/// Tells how far a task has come that may take long, of the root rank: on a terminal a line drawn
/// anew in place, elsewhere and beside a live table (log.h) lines in the log. A short one is not
/// shown.
class TaskProgress {
  public:
    struct Times {
        double first_drawn = 2.0;  ///< seconds from its start
        double between_drawn = 0.2;
        double first_line = 10.0;
        double between_lines = 30.0;
    };

    /// `bytes`: of all, which add() is given bit by bit; 0 = not known.
    TaskProgress(std::string what, std::uint64_t bytes);
    TaskProgress(std::string what, std::uint64_t bytes, Times times);
    /// Takes the drawn line away.
    ~TaskProgress();
    TaskProgress(const TaskProgress&) = delete;
    TaskProgress& operator=(const TaskProgress&) = delete;

    /// So much more is done. On the thread that made this.
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

}  // namespace loratrain
