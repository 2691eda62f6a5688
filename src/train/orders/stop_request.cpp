#include "train/orders/stop_request.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <thread>

#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"

namespace loratrain {

namespace {

constexpr double same_request_seconds = 1.0;

std::atomic<int> first_signal{0};
std::atomic<bool> released{false};

sigset_t set_of(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    return set;
}

sigset_t stop_signals() {
    return set_of({SIGTERM, SIGINT, SIGUSR1});
}

void end_process_by(int signal) {
    const sigset_t set = set_of({signal});
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::raise(signal);
}

[[noreturn]] void take_signals() {
    const sigset_t set = stop_signals();
    std::optional<std::chrono::steady_clock::time_point> termination_asked;
    for (;;) {
        int signal = 0;
        if (sigwait(&set, &signal) != 0) continue;
        int none = 0;
        first_signal.compare_exchange_strong(none, signal);
        if (released) end_process_by(signal);
        if (signal == SIGUSR1) continue;
        if (!termination_asked) {
            termination_asked = std::chrono::steady_clock::now();
        } else if (seconds_since(*termination_asked) > same_request_seconds) {
            end_process_by(signal);
        }
    }
}

}  // namespace

void hold_stop_signals() {
    const sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void install_stop_signals() {
    static std::atomic<bool> taken{false};
    hold_stop_signals();
    if (!taken.exchange(true)) std::thread(take_signals).detach();
}

void release_stop_signals() {
    released = true;
    if (const int signal = first_signal) end_process_by(signal);
}

int stop_signal() {
    return first_signal;
}

int stop_signal_of_any_rank(const MpiSession& mpi) {
    const auto signals = gather_numbers(mpi, static_cast<std::uint64_t>(stop_signal()));
    return static_cast<int>(*std::max_element(signals.begin(), signals.end()));
}

std::string signal_text(int signal) {
    if (signal == SIGTERM) return "signal SIGTERM";
    if (signal == SIGINT) return "signal SIGINT";
    if (signal == SIGUSR1) return "signal SIGUSR1";
    return cat("signal ", signal);
}

}  // namespace loratrain
