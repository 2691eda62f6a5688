#pragma once

#include <cstddef>
#include <functional>

namespace loratrain {

/// As memcpy: what `from` holds, into `to`.
using ByteCopy = std::function<void(void* to, const void* from, std::size_t bytes)>;

}  // namespace loratrain
