#include "train/late_reads.h"

#include <chrono>
#include <thread>

#include "base/activity.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr std::chrono::microseconds poll_interval{20};

}  // namespace

void LateReads::read(std::initializer_list<ReadPart> parts, Use use) {
    pending_.push_back({backend_.read_later({parts.begin(), parts.size()}), std::move(use)});
    poll();
}

void LateReads::poll() {
    while (!pending_.empty() && pending_.front().readback->ready()) {
        const Pending arrived = std::move(pending_.front());
        pending_.pop_front();
        const activity::OffDevice using_it;
        arrived.use(static_cast<const double*>(arrived.readback->value()));
    }
}

void LateReads::finish() {
    for (poll(); !pending_.empty(); poll()) {
        work_while_waiting(communicator_);
        std::this_thread::sleep_for(poll_interval);
    }
}

}  // namespace loratrain
