#include "comm/quiet_wait.h"

#include <thread>

#include "comm/mpi_check.h"
#include "comm/while_waiting.h"

namespace loratrain {

bool are_done(std::span<MPI_Request> requests) {
    int done = 0;
    MPI_CHECK(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    return done != 0;
}

void quiet_wait(std::span<MPI_Request> requests, std::chrono::microseconds interval) {
    while (!are_done(requests)) std::this_thread::sleep_for(interval);
}

void wait_for(std::span<MPI_Request> requests, bool quiet, std::chrono::microseconds interval) {
    if (!quiet && !has_work_while_waiting()) {
        MPI_CHECK(
            MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
        return;
    }
    while (!are_done(requests)) {
        work_while_waiting();
        if (quiet) std::this_thread::sleep_for(interval);
    }
}

}  // namespace loratrain
