#pragma once

namespace loratrain {

/// From now on SIGTERM, SIGINT and SIGUSR1 ask for a clean stop (checkpoint, exit 75) at the next
/// window end instead of killing the process.
void install_stop_signals();

/// True once such a signal came to this process.
bool stop_signalled();

}  // namespace loratrain
