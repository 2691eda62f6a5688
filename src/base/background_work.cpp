#include "base/background_work.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace loratrain {

namespace {

constexpr int steps_lower = 10;  // a tenth of what another thread on the same processor gets
constexpr int lowest = 19;
std::atomic<int> works = 0;

/// Linux takes a thread for a process here. What the system refuses leaves the thread as it was.
void step_back() {
    const auto thread = static_cast<id_t>(gettid());
    setpriority(PRIO_PROCESS, thread,
                std::min(getpriority(PRIO_PROCESS, thread) + steps_lower, lowest));
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
    sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace

BackgroundWork::BackgroundWork() {
    thread_local bool back = false;
    ++works;
    if (!back) step_back();
    back = true;
}

BackgroundWork::~BackgroundWork() {
    --works;
}

bool has_background_work() {
    return works > 0;
}

}  // namespace loratrain
