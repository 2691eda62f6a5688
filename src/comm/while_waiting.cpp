#include "comm/while_waiting.h"

#include <utility>

#include "base/error.h"
#include "comm/communicator.h"

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

}  // namespace loratrain
