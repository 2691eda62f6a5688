#pragma once

#include <string>

#include "comm/mpi_session.h"

namespace loratrain {

/// From now on SIGUSR1, SIGTERM and SIGINT ask for a clean stop (checkpoint, exit 75) at the next
/// window end instead of killing the process. A second SIGTERM or SIGINT ends it at once; copies of
/// the first that arrive within a second of it (batch systems signal both launcher and ranks) do
/// not count. SIGUSR1 only ever asks.
///
/// One thread waits for them; the calling thread and all that it starts later have them blocked, so
/// that none interrupts a system call or a kernel, and handlers that a library installs never run.
/// Call it before there is any other thread; again where a library may have unblocked them.
void install_stop_signals();

/// Blocks them for this thread, so that they wait until install_stop_signals(): what a program does
/// before anything else. Needs nothing of the C++ library.
void hold_stop_signals();

/// They end the process again, as does now one that has come already: for commands that leave
/// nothing behind to continue from.
void release_stop_signals();

/// The number of the first signal that came to this process; 0 = none.
int stop_signal();

/// That of any rank. Collective.
int stop_signal_of_any_rank(const MpiSession& mpi);

/// "signal SIGUSR1".
std::string signal_text(int signal);

}  // namespace loratrain
