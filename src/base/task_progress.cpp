#include "base/task_progress.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "base/system.h"
#include "base/text.h"

namespace loratrain {

std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t bytes,
                          double seconds) {
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
    std::string text = what + ": ";
    if (bytes > 0) {
        text += cat(done * 100 / bytes, "%, ", human_bytes(done), " of ", human_bytes(bytes));
    } else {
        text += human_bytes(done);
    }
    text += cat(", ", human_bytes(static_cast<std::uint64_t>(rate)), "/s");
    if (bytes > done && rate > 0) {
        text += cat(", ", human_duration(static_cast<double>(bytes - done) / rate), " left");
    }
    return text;
}

TaskProgress::TaskProgress(std::string what, std::uint64_t bytes)
    : TaskProgress(std::move(what), bytes, Times{}) {}

TaskProgress::TaskProgress(std::string what, std::uint64_t bytes, Times times)
    : what_(std::move(what)),
      bytes_(bytes),
      times_(times),
      may_draw_(log::live_rows() == 0),
      next_(may_draw_ ? times.first_drawn : times.first_line) {
    if (!log::is_root()) next_ = std::numeric_limits<double>::infinity();
}

TaskProgress::~TaskProgress() {
    if (!draws_) return;
    log::show_live({});
    log::end_live();
}

void TaskProgress::add(std::uint64_t bytes) {
    done_ += bytes;
    const double seconds = seconds_since(start_);
    if (seconds >= next_) show(seconds);
}

void TaskProgress::show(double seconds) {
    if (std::exchange(may_draw_, false)) {
        draws_ = log::start_live();
        if (!draws_) {
            next_ = std::max(next_, times_.first_line);
            if (seconds < next_) return;
        }
    }
    const std::string text =
        progress_text(what_, std::min(done_, bytes_ > 0 ? bytes_ : done_), bytes_, seconds);
    if (draws_) {
        log::show_live({text});
    } else {
        log::info(text);
    }
    next_ = seconds + (draws_ ? times_.between_drawn : times_.between_lines);
}

void PhaseTimes::end(const std::string& phase) {
    add(phase, seconds_since(last_));
    last_ = std::chrono::steady_clock::now();
}

void PhaseTimes::add(const std::string& phase, double seconds) {
    const auto same = std::find_if(phases_.begin(), phases_.end(),
                                   [&](const auto& known) { return known.first == phase; });
    if (same == phases_.end()) {
        phases_.emplace_back(phase, seconds);
    } else {
        same->second += seconds;
    }
}

double PhaseTimes::of(const std::string& phase) const {
    for (const auto& [known, seconds] : phases_) {
        if (known == phase) return seconds;
    }
    return 0.0;
}

double PhaseTimes::total() const {
    double total = 0.0;
    for (const auto& [phase, seconds] : phases_) total += seconds;
    return total;
}

std::string PhaseTimes::text() const {
    constexpr double least_shown = 0.1;
    std::vector<std::string> shown;
    for (const auto& [phase, seconds] : phases_) {
        if (seconds >= least_shown) shown.push_back(cat(phase, " ", format_fixed(seconds, 1)));
    }
    return cat(format_fixed(total(), 1), " s", shown.empty() ? "" : ": ", join(shown, ", "));
}

}  // namespace loratrain
