#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace loratrain {

/// work(0) ... work(count - 1) on at most `threads` threads, the caller's among them; returns when
/// all are done. What the work of the smallest index threw is rethrown then.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

/// work(begin, end) for shares of `rows` rows of `cols` numbers each, on as many threads as this
/// process may run on where there is enough to share; as parallel_for.
void share_rows(std::int64_t rows, std::int64_t cols,
                const std::function<void(std::int64_t, std::int64_t)>& work);

}  // namespace loratrain
