#include "train/orders/stop_request.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "backend/make_backend.h"
#include "base/rng.h"

namespace loratrain {
namespace {

/// Small products while SIGUSR1 comes every 100 microseconds.
[[noreturn]] void multiply_under_signals() {
    install_stop_signals();
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    timer_t timer = nullptr;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    const itimerspec often{{0, 100000}, {0, 100000}};
    timer_settime(timer, 0, &often, nullptr);
    const auto backend = make_backend("cpu", {1, 0});
    for (std::uint64_t i = 0; i < 30000; ++i) {
        const auto m = static_cast<std::int64_t>(8 + uniform_int(1, i, 100));
        const auto n = static_cast<std::int64_t>(16 * (1 + uniform_int(2, i, 8)));
        const auto k = static_cast<std::int64_t>(16 * (1 + uniform_int(3, i, 8)));
        std::vector<float> a(static_cast<std::size_t>(m * k), 1.0F);
        std::vector<float> b(static_cast<std::size_t>(n * k), 1.0F);
        std::vector<float> c(static_cast<std::size_t>(m * n));
        Gemm op;
        op.a = matrix(a.data(), DType::f32, m, k);
        op.b = matrix(b.data(), DType::f32, n, k);
        op.c = matrix(c.data(), DType::f32, m, n);
        op.transpose_b = true;
        backend->gemm(op);
        if (c.front() != static_cast<float>(k) || c.back() != static_cast<float>(k)) std::_Exit(1);
    }
    std::_Exit(stop_signal() == 0 ? 2 : 0);
}

TEST(StopRequest, SignalsDoNotDisturbMatrixProducts) {
    EXPECT_EXIT(multiply_under_signals(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loratrain
