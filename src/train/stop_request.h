#pragma once

#include <string>

namespace loratrain {

/// From now on SIGUSR1, SIGTERM and SIGINT ask for a clean stop (checkpoint, exit 75) at the next
/// window end instead of killing the process. A second SIGTERM or SIGINT ends it at once; copies of
/// the first that arrive within a second of it (batch systems signal both launcher and ranks) do
/// not count. SIGUSR1 only ever asks.
void install_stop_signals();

/// The number of the first signal that came to this process; 0 = none.
int stop_signal();

/// "signal SIGUSR1".
std::string signal_text(int signal);

}  // namespace loratrain
