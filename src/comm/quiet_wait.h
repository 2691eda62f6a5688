#pragma once

#include <mpi.h>

#include <chrono>
#include <span>

namespace loratrain {

/// Whether all of the requests are, which become MPI_REQUEST_NULL then. Does not wait.
bool are_done(std::span<MPI_Request> requests);

/// Waits for all of the requests, which become MPI_REQUEST_NULL. Looks after them only every
/// `interval` and leaves the processor to others meanwhile, where MPI_Waitall keeps it busy.
void quiet_wait(std::span<MPI_Request> requests, std::chrono::microseconds interval);
/// The same, or where not `quiet` without leaving the processor to others. Does meanwhile what
/// there is to be done while waiting (while_waiting.h).
void wait_for(std::span<MPI_Request> requests, bool quiet, std::chrono::microseconds interval);

}  // namespace loratrain
