#include "report/status_text.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <sstream>

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
    std::string line = cat("step ", status.round, "/", status.rounds, ", trained for ",
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

std::string pulse_text(const RunStatus& status, const Pulse& pulse) {
    const std::string process = cat("process ", status.pid, " on ", status.host);
    switch (pulse.life) {
        case Life::alive:
            return cat("running, last sign of life ", human_duration(pulse.age), " ago (", process,
                       ")");
        case Life::silent:
            return cat("no sign of life for ", human_duration(pulse.age), " (", process,
                       " is stuck or dead; the same command continues a dead run)");
        case Life::vanished:
            return cat("ended without a word: ", process, " is gone, last sign of life ",
                       human_duration(pulse.age), " ago (the same command continues it)");
        case Life::ended:
            break;
    }
    std::string text = status.state + " " + time_text(status.updated);
    if (!status.reason.empty()) text += ": " + status.reason;
    if (status.state == "stopped") text += " (the same command continues)";
    return text;
}

std::string status_text(const std::string& dir, const RunStatus& status, const Pulse& pulse) {
    std::ostringstream text;
    text << dir << ": " << pulse_text(status, pulse) << '\n'
         << progress_line(status, pulse) << "\n\n";
    std::size_t widest = 7;
    std::size_t widest_state = 7;
    bool with_priority = false;
    for (const AdapterProgress& a : status.adapters) {
        widest = std::max(widest, a.name.size());
        widest_state = std::max(widest_state, a.status.size());
        with_priority = with_priority || a.priority != 0;
    }
    const auto row = [&](const std::string& name, const std::string& state,
                         const std::string& priority, const std::string& step,
                         const std::string& loss, const std::string& eval,
                         const std::string& exact) {
        text << "  " << std::left << std::setw(static_cast<int>(widest) + 2) << name
             << std::setw(static_cast<int>(widest_state) + 2) << state << std::right;
        if (with_priority) text << std::setw(8) << priority;
        text << std::setw(13) << step << std::setw(12) << loss << std::setw(12) << eval
             << std::setw(13) << exact << '\n';
    };
    row("adapter", "status", "priority", "step", "train loss", "eval loss", "exact match");
    for (const AdapterProgress& a : status.adapters) {
        row(a.name, a.status, std::to_string(a.priority), cat(a.step, "/", a.total_steps),
            number_or_dash(a.loss, 1, 4, ""), number_or_dash(a.eval_loss, 1, 4, ""),
            number_or_dash(a.eval_exact_match, 100.0, 1, "%"));
    }
    return text.str();
}

}  // namespace loratrain
