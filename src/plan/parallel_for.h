#pragma once

#include <cstddef>
#include <functional>

namespace loratrain {

/// work(0) ... work(count - 1) on at most `threads` threads, the caller's among them; returns when
/// all are done. What the work of the smallest index threw is rethrown then.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace loratrain
