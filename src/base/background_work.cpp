#include "base/background_work.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

namespace loratrain {

namespace {

constexpr int lower_priority = 10;  // a tenth of what a usual thread on the same processor gets
std::atomic<int> works = 0;

}  // namespace

BackgroundWork::BackgroundWork() {
    ++works;
    // Linux takes a thread for a process here. Without either the work is done all the same.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), lower_priority);
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
    sched_setaffinity(0, sizeof(all), &all);
}

BackgroundWork::~BackgroundWork() {
    --works;
}

bool has_background_work() {
    return works > 0;
}

}  // namespace loratrain
