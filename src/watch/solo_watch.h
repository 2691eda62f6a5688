#pragma once

namespace loratrain {

/// A rank's own watch, from before MPI starts until ranks hear of each other (Watchdog), and again
/// at the end: a rank that is stopped then, or that a file system keeps waiting, would let the
/// others wait in MPI for ever. It ends this process, and with it the job, with one message, when
/// the main thread has not come out of what it is at for longer than it may. Of several ranks that
/// wait one speaks first. Time in which this process was stopped does not count. One per process;
/// from any thread.
namespace solo_watch {

/// From now on at most `seconds` (run.peer_timeout; 0 = as long as it takes), counted anew. `what`:
/// "starting MPI"; lives as long as the program. Nothing is watched where a launcher says that
/// there is one rank, or none says anything.
void begin(double seconds, const char* what);

/// The main thread has come further: it is counted anew.
void advance(const char* what);

/// Nothing is watched any more.
void end();

}  // namespace solo_watch
}  // namespace loratrain
