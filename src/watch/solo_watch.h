#pragma once

namespace loratrain {

/// Watch of a single rank while ranks do not hear of each other: from before MPI starts until
/// Watchdog begins, and again at the end of the job. In these phases the other ranks would wait in
/// MPI for ever for a rank that is stopped, or that a file system keeps waiting.
///
/// It ends this process, and with it the job, with one message, if the main thread makes no
/// progress for longer than allowed. If several ranks wait, one of them reports first. Time in
/// which this process was stopped does not count. There is one watch per process; its functions may
/// be called from any thread.
namespace solo_watch {

/// Starts the watch, with the count at zero. `seconds`: longest time without progress
/// (run.peer_timeout; 0 = no limit). `what`: the current phase, such as "starting MPI"; the string
/// lives as long as the program. Nothing is watched if the launcher reports one rank, or reports
/// nothing.
void begin(double seconds, const char* what);

/// Reports progress of the main thread, which is now in phase `what`: the count restarts at zero.
void advance(const char* what);

/// Ends the watch.
void end();

}  // namespace solo_watch
}  // namespace loratrain
