#include "base/threads.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace loratrain {

namespace {

constexpr int steps_lower = 10;  // a tenth of what another thread on the same processor gets
constexpr int lowest = 19;
std::atomic<int> works = 0;

void take_all_processors() {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
    sched_setaffinity(0, sizeof(all), &all);
}

/// Lowers this thread's priority and frees it from the rank's processors, as far as the system
/// allows. Linux takes the id of a thread for that of a process here.
void step_back() {
    const auto thread = static_cast<id_t>(gettid());
    setpriority(PRIO_PROCESS, thread,
                std::min(getpriority(PRIO_PROCESS, thread) + steps_lower, lowest));
    take_all_processors();
}

}  // namespace

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
    std::vector<std::exception_ptr> errors(count);
    std::atomic<std::size_t> next{0};
    const auto run = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    const std::size_t wanted = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
    {
        std::vector<std::jthread> helpers;
        for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back(run);
        run();
    }
    for (const std::exception_ptr& error : errors) {
        if (error != nullptr) std::rethrow_exception(error);
    }
}

void share_rows(std::int64_t rows, std::int64_t cols,
                const std::function<void(std::int64_t, std::int64_t)>& work) {
    constexpr std::int64_t values_per_share = 1 << 18;
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const std::int64_t shares = std::clamp<std::int64_t>(rows * cols / values_per_share, 1,
                                                         std::max<std::int64_t>(1, rows));
    parallel_for(static_cast<std::size_t>(shares), threads, [&](std::size_t share) {
        const auto s = static_cast<std::int64_t>(share);
        work(rows * s / shares, rows * (s + 1) / shares);
    });
}

BackgroundWork::BackgroundWork() {
    thread_local bool back = false;
    ++works;
    if (!back) step_back();
    back = true;
}

BackgroundWork::~BackgroundWork() {
    --works;
}

void work_beside(Beside beside, const std::function<void()>& work) {
    if (beside == Beside::training) {
        const BackgroundWork background;
        return work();
    }
    const AllProcessors everywhere;
    work();
}

AllProcessors::AllProcessors() {
    CPU_ZERO(&former_);
    if (sched_getaffinity(0, sizeof(former_), &former_) == 0) take_all_processors();
}

AllProcessors::~AllProcessors() {
    if (CPU_COUNT(&former_) > 0) sched_setaffinity(0, sizeof(former_), &former_);
}

bool has_background_work() {
    return works > 0;
}

}  // namespace loratrain
