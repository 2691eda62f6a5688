#include "train/stop_request.h"

#include <csignal>
#include <initializer_list>

namespace loratrain {

namespace {

volatile std::sig_atomic_t signalled = 0;

extern "C" void remember_signal(int /*signal*/) {
    signalled = 1;
}

}  // namespace

void install_stop_signals() {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        struct sigaction action {};
        action.sa_handler = remember_signal;
        sigaction(signal, &action, nullptr);
    }
}

bool stop_signalled() {
    return signalled != 0;
}

}  // namespace loratrain
