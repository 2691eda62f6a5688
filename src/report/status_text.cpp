#include "report/status_text.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <limits>
#include <map>
#include <span>
#include <sstream>

#include "base/system.h"
#include "base/text.h"

namespace loratrain {

namespace {

constexpr double least_silence = 60.0;
constexpr double rounds_of_silence = 5.0;

std::string number_or_dash(const std::optional<double>& value, double factor, int decimals,
                           const char* unit) {
    return value ? format_fixed(*value * factor, decimals) + unit : "-";
}

std::string progress_line(const RunStatus& status, const Pulse& pulse) {
    std::string line = cat("round ", status.round, "/", status.rounds, ", trained for ",
                           human_duration(status.elapsed_seconds), " on ", status.ranks,
                           status.ranks == 1 ? " rank" : " ranks");
    if (status.tokens_per_second > 0) {
        line += cat(", ", format_fixed(status.tokens_per_second, 0), " tokens/s");
    }
    if (pulse.life == Life::alive && status.seconds_left) {
        line += cat(", about ", human_duration(*status.seconds_left), " left");
    }
    return line;
}

/// Lays out a table whose columns keep their places while numbers change.
class AdapterTable {
  public:
    AdapterTable(const std::vector<AdapterProgress>& adapters, const std::string& accuracy)
        : accuracy_(accuracy) {
        accuracy_width_ = std::max(accuracy_width_, accuracy.size() + 2);
        for (const AdapterProgress& a : adapters) {
            name_width_ = std::max(name_width_, a.name.size() + 2);
            status_width_ = std::max(status_width_, a.status.size() + 2);
            priorities_ = priorities_ || a.priority != 0;
        }
    }

    std::string header() const {
        return row("adapter", "status", "priority", "step", "train loss", "eval loss", accuracy_);
    }

    std::string row(const AdapterProgress& a) const {
        return row(a.name, a.status, std::to_string(a.priority), cat(a.step, "/", a.total_steps),
                   number_or_dash(a.loss, 1, 4, ""), number_or_dash(a.eval_loss, 1, 4, ""),
                   number_or_dash(a.eval_exact_match, 100.0, 1, "%"));
    }

  private:
    std::string row(const std::string& name, const std::string& state, const std::string& priority,
                    const std::string& step, const std::string& loss, const std::string& eval,
                    const std::string& exact) const {
        std::ostringstream text;
        text << "  " << std::left << std::setw(static_cast<int>(name_width_)) << name
             << std::setw(static_cast<int>(status_width_)) << state << std::right;
        if (priorities_) text << std::setw(8) << priority;
        text << std::setw(13) << step << std::setw(12) << loss << std::setw(12) << eval
             << std::setw(static_cast<int>(accuracy_width_)) << exact;
        return text.str();
    }

    std::size_t name_width_ = 9;
    std::size_t status_width_ = 9;
    std::size_t accuracy_width_ = 13;
    std::string accuracy_;
    bool priorities_ = false;
};

/// "  ... 37 more: 30 WAITING, 7 DONE".
std::string rest_line(std::span<const AdapterProgress> rest) {
    std::map<std::string, int> counts;
    for (const AdapterProgress& a : rest) ++counts[a.status];
    std::vector<std::string> words;
    words.reserve(counts.size());
    for (const auto& [state, count] : counts) words.push_back(cat(count, " ", state));
    return cat("  ... ", rest.size(), " more: ", join(words, ", "));
}

std::vector<std::string> adapter_lines(std::vector<AdapterProgress> adapters,
                                       const std::string& accuracy, std::size_t most) {
    const AdapterTable table(adapters, accuracy);
    std::vector<std::string> lines{table.header()};
    std::size_t shown = adapters.size();
    if (shown + 1 > most) {
        shown = most < 2 ? 0 : most - 2;
        std::stable_partition(adapters.begin(), adapters.end(),
                              [](const AdapterProgress& a) { return a.status == "RUNNING"; });
    }
    for (std::size_t i = 0; i < shown; ++i) lines.push_back(table.row(adapters[i]));
    if (shown < adapters.size()) lines.push_back(rest_line(std::span(adapters).subspan(shown)));
    return lines;
}

}  // namespace

bool process_exists(std::int64_t pid) {
    return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

Pulse pulse_of(const RunStatus& status, double now, const std::string& host,
               bool (*exists)(std::int64_t pid)) {
    Pulse pulse{Life::ended, std::max(0.0, now - status.updated)};
    if (status.state != "running") return pulse;
    const double silence = std::max(least_silence, rounds_of_silence * status.seconds_per_round);
    pulse.life = pulse.age > silence ? Life::silent : Life::alive;
    if (status.host == host && !exists(status.pid)) pulse.life = Life::vanished;
    return pulse;
}

Pulse pulse_now(const RunStatus& status) {
    return pulse_of(status, unix_time(), host_name(), process_exists);
}

std::string run_word(const RunStatus& status, const Pulse& pulse) {
    if (pulse.life == Life::vanished) return "interrupted";
    return pulse.life == Life::silent ? "silent" : status.state;
}

std::string pulse_text(const RunStatus& status, const Pulse& pulse) {
    const std::string process = cat("process ", status.pid, " on ", status.host);
    switch (pulse.life) {
        case Life::alive:
            if (!(pulse.age > 0)) return cat("running (", process, ")");
            return cat("running, last heartbeat ", human_duration(pulse.age), " ago (", process,
                       ")");
        case Life::silent:
            return cat("no heartbeat for ", human_duration(pulse.age), " (", process,
                       " hangs or is dead; if it is dead, the same command continues the run)");
        case Life::vanished:
            return cat(run_word(status, pulse), ": ", process, " is gone, last heartbeat ",
                       human_duration(pulse.age), " ago (the same command continues it)");
        case Life::ended:
            break;
    }
    std::string text = status.state + " " + time_text(status.updated);
    if (!status.reason.empty()) text += ": " + status.reason;
    if (status.state == "stopped") text += " (the same command continues)";
    return text;
}

std::string shown_status(const std::string& status, const Pulse& pulse) {
    const bool over = pulse.life == Life::ended || pulse.life == Life::vanished;
    return over ? status_of_ended(status) : status;
}

std::vector<std::string> status_lines(const std::string& dir, const RunStatus& status,
                                      const Pulse& pulse, std::size_t most_lines) {
    std::vector<std::string> lines{dir + ": " + pulse_text(status, pulse),
                                   progress_line(status, pulse), ""};
    std::vector<AdapterProgress> adapters = status.adapters;
    for (AdapterProgress& adapter : adapters) adapter.status = shown_status(adapter.status, pulse);
    const auto table = adapter_lines(std::move(adapters), status.accuracy,
                                     most_lines - std::min(most_lines, lines.size()));
    lines.insert(lines.end(), table.begin(), table.end());
    lines.resize(std::min(lines.size(), most_lines));
    return lines;
}

std::string status_text(const std::string& dir, const RunStatus& status, const Pulse& pulse) {
    const std::size_t all = std::numeric_limits<std::size_t>::max();
    return join(status_lines(dir, status, pulse, all), "\n") + "\n";
}

}  // namespace loratrain
