#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/run_files/status_file.h"

namespace loratrain {

/// The text of `loratrain status`.

/// Whether a run whose status is "running" still runs.
enum class Life : std::uint8_t {
    ended,    ///< its status says how it ended
    alive,    ///< the heartbeat is recent
    silent,   ///< the heartbeat is older than a minute and than five rounds take
    vanished  ///< its process ran on this host and is gone
};

struct Pulse {
    Life life = Life::ended;
    double age = 0.0;  ///< of the heartbeat, in seconds
};

/// How alive a run is at time `now`, seen from `host`. `process_exists` is only called for
/// processes of this host.
Pulse pulse_of(const RunStatus& status, double now, const std::string& host,
               bool (*process_exists)(std::int64_t pid));
bool process_exists(std::int64_t pid);

/// One line: "running, last heartbeat 2 s ago" (age 0: "running"), "no heartbeat for
/// 12 min 3 s (process 812 on node01 may be dead)", "done 2026-03-01 14:05:09".
std::string pulse_text(const RunStatus& status, const Pulse& pulse);

/// Pulse of a run now, seen from this host.
Pulse pulse_now(const RunStatus& status);

/// The run's state in one word: running, silent, interrupted (its process is gone), stopped, done
/// or failed.
std::string run_word(const RunStatus& status, const Pulse& pulse);

/// An adapter's status as people read it: INTERRUPTED instead of RUNNING if its run has ended.
std::string shown_status(const std::string& status, const Pulse& pulse);

/// Table of a run: the pulse, the progress, and a line per adapter. With more than `most_lines`
/// lines, adapters in training come first and the last line counts the others.
std::vector<std::string> status_lines(const std::string& dir, const RunStatus& status,
                                      const Pulse& pulse, std::size_t most_lines);

/// The whole table, as `loratrain status` prints it.
std::string status_text(const std::string& dir, const RunStatus& status, const Pulse& pulse);

}  // namespace loratrain
