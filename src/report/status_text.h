#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/run_files/status_file.h"

namespace loratrain {

/// Whether a run that says "running" does so still.
enum class Life : std::uint8_t {
    ended,    ///< it has said how
    alive,    ///< the heartbeat is young
    silent,   ///< it is old: more than a minute, and more than five rounds take
    vanished  ///< its process ran on this host and is gone
};

struct Pulse {
    Life life = Life::ended;
    double age = 0.0;  ///< of the heartbeat, in seconds
};

/// `process_exists` is asked only about processes of `host`.
Pulse pulse_of(const RunStatus& status, double now, const std::string& host,
               bool (*process_exists)(std::int64_t pid));
bool process_exists(std::int64_t pid);

/// One line: "running, last sign of life 2 s ago" (age 0: "running"), "no sign of life for
/// 12 min 3 s (process 812 on node01 may be dead)", "done 2026-03-01 14:05:09".
std::string pulse_text(const RunStatus& status, const Pulse& pulse);

/// Here and now.
Pulse pulse_now(const RunStatus& status);

/// The run's state in one word: running, silent, interrupted (its process is gone), stopped, done
/// or failed.
std::string run_word(const RunStatus& status, const Pulse& pulse);

/// An adapter's status for people to read: RUNNING is INTERRUPTED where its run has ended.
std::string shown_status(const std::string& status, const Pulse& pulse);

/// The table of a run: the pulse, how far the run is, a line per adapter. Where they are more than
/// `most_lines`, those that train come first and the last line counts the others.
std::vector<std::string> status_lines(const std::string& dir, const RunStatus& status,
                                      const Pulse& pulse, std::size_t most_lines);

/// What `loratrain status` prints: all of it.
std::string status_text(const std::string& dir, const RunStatus& status, const Pulse& pulse);

}  // namespace loratrain
