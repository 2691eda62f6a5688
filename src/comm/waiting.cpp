#include "comm/waiting.h"

#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"

namespace loratrain {

namespace {

std::function<void()>& work_of_process() {
    static std::function<void()> work;
    return work;
}

}  // namespace

WhileWaiting::WhileWaiting(std::function<void()> work) {
    LORATRAIN_CHECK(!has_work_while_waiting(), "there is work to be done while waiting already");
    work_of_process() = std::move(work);
}

WhileWaiting::~WhileWaiting() {
    work_of_process() = {};
}

bool has_work_while_waiting() {
    return static_cast<bool>(work_of_process());
}

void work_while_waiting() {
    if (has_work_while_waiting()) work_of_process()();
}

void work_while_waiting(Communicator& communicator) {
    communicator.check();
    communicator.progress();
    work_while_waiting();
}

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
