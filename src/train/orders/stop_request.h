#pragma once

#include <string>

#include "comm/mpi_session.h"

namespace loratrain {

/// Signals that ask for a clean stop.

/// Makes SIGUSR1, SIGTERM and SIGINT ask for a clean stop (checkpoint, exit 75) at the next end of
/// a window instead of killing the process. A second SIGTERM or SIGINT ends the process at once;
/// copies of the first one within a second do not count, since batch systems signal both launcher
/// and ranks. SIGUSR1 only asks.
///
/// One thread waits for these signals. The calling thread and all that it starts later block them,
/// so that no system call or kernel is interrupted and handlers of libraries never run. Call it
/// before any other thread exists, and again if a library may have unblocked the signals.
void install_stop_signals();

/// Blocks these signals in this thread until install_stop_signals(). Call it first in main(). Uses
/// nothing of the C++ library.
void hold_stop_signals();

/// Lets these signals end the process again, also one that has come already: for commands that
/// leave nothing to continue from.
void release_stop_signals();

/// The first signal that came to this process; 0 = none.
int stop_signal();

/// A signal that came to any rank; 0 = none. Collective.
int stop_signal_of_any_rank(const MpiSession& mpi);

/// "signal SIGUSR1".
std::string signal_text(int signal);

}  // namespace loratrain
