#include "plan/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace loratrain {

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

}  // namespace loratrain
