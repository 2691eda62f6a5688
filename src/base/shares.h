#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace loratrain {

/// body(begin, end) for shares of `rows` rows of `cols` numbers each, at the same time on the
/// threads of this machine, where there is enough to share. `body` must not throw.
template <class Body>
void in_shares(std::int64_t rows, std::int64_t cols, const Body& body) {
    constexpr std::int64_t values_per_thread = 1 << 18;
    const auto workers = std::clamp<std::int64_t>(
        rows * cols / values_per_thread, 1, std::max(1U, std::thread::hardware_concurrency()));
    if (workers == 1) return body(std::int64_t{0}, rows);
    std::vector<std::jthread> threads;
    for (std::int64_t w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] { body(rows * w / workers, rows * (w + 1) / workers); });
    }
}

}  // namespace loratrain
