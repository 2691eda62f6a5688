#include "train/stop_request.h"

#include <array>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <initializer_list>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr double same_request_seconds = 1.0;

volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t termination_asked = 0;
timespec asked_at{};

double seconds_since_asked() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec - asked_at.tv_sec) +
           1e-9 * static_cast<double>(now.tv_nsec - asked_at.tv_nsec);
}

extern "C" void remember_signal(int signal) {
    if (first_signal == 0) first_signal = signal;
    if (signal == SIGUSR1) return;
    if (termination_asked == 0) {
        clock_gettime(CLOCK_MONOTONIC, &asked_at);
        termination_asked = 1;
    } else if (seconds_since_asked() > same_request_seconds) {
        std::signal(signal, SIG_DFL);
        std::raise(signal);
    }
}

/// oneDNN's GEMM kernels point the stack pointer into heap memory; the frame of a handler must not
/// go there.
void use_signal_stack() {
    static std::array<char, std::size_t{64} << 10U> memory;
    stack_t stack{};
    stack.ss_sp = memory.data();
    stack.ss_size = memory.size();
    sigaltstack(&stack, nullptr);
}

}  // namespace

void install_stop_signals() {
    use_signal_stack();
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        struct sigaction action {};
        action.sa_handler = remember_signal;
        action.sa_flags = SA_ONSTACK;
        for (const int other : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&action.sa_mask, other);
        sigaction(signal, &action, nullptr);
    }
}

int stop_signal() {
    return first_signal;
}

std::string signal_text(int signal) {
    if (signal == SIGTERM) return "signal SIGTERM";
    if (signal == SIGINT) return "signal SIGINT";
    if (signal == SIGUSR1) return "signal SIGUSR1";
    return cat("signal ", signal);
}

}  // namespace loratrain
