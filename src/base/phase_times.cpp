#include "base/phase_times.h"

#include <algorithm>

#include "base/system.h"
#include "base/text.h"

namespace loratrain {

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

std::string PhaseTimes::text() const {
    constexpr double least_shown = 0.1;
    double total = 0.0;
    std::vector<std::string> shown;
    for (const auto& [phase, seconds] : phases_) {
        total += seconds;
        if (seconds >= least_shown) shown.push_back(cat(phase, " ", format_fixed(seconds, 1)));
    }
    return cat(format_fixed(total, 1), " s", shown.empty() ? "" : ": ", join(shown, ", "));
}

}  // namespace loratrain
