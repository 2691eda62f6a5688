#include "comm/quiet_wait.h"

#include <thread>

#include "comm/mpi_check.h"

namespace loratrain {

void quiet_wait(std::span<MPI_Request> requests, std::chrono::microseconds interval) {
    const int count = static_cast<int>(requests.size());
    const auto all_done = [&] {
        int done = 0;
        MPI_CHECK(MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE));
        return done != 0;
    };
    while (!all_done()) std::this_thread::sleep_for(interval);
}

}  // namespace loratrain
