#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <span>

namespace loratrain {

/// How a process waits for messages of MPI, and what it does meanwhile.

class Communicator;

/// While one lives, the main thread runs `work` whenever it waits for other ranks, since some of
/// them may wait for just that work. At most one per process; `work` must not wait itself.
class WhileWaiting {
  public:
    explicit WhileWaiting(std::function<void()> work);
    ~WhileWaiting();
    WhileWaiting(const WhileWaiting&) = delete;
    WhileWaiting& operator=(const WhileWaiting&) = delete;
};

/// True while a WhileWaiting lives.
bool has_work_while_waiting();

/// Runs the work of the WhileWaiting, if one lives. Everything that waits for other ranks calls
/// this now and then.
void work_while_waiting();
/// For code that waits for its device: also accepts messages that have arrived, and throws Error
/// naming the link that is known to have failed.
void work_while_waiting(Communicator& communicator);

/// True if all requests are complete; they become MPI_REQUEST_NULL then. Does not wait.
bool are_done(std::span<MPI_Request> requests);

/// Waits for all requests, which become MPI_REQUEST_NULL. Polls once per `interval` and leaves the
/// processor to others in between; MPI_Waitall would keep it busy.
void quiet_wait(std::span<MPI_Request> requests, std::chrono::microseconds interval);

/// Waits for all requests, which become MPI_REQUEST_NULL, and runs work_while_waiting(). `quiet`:
/// polls as quiet_wait(); else keeps the processor.
void wait_for(std::span<MPI_Request> requests, bool quiet, std::chrono::microseconds interval);

}  // namespace loratrain
