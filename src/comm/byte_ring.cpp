#include "comm/byte_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/arithmetic.h"

namespace loratrain {

namespace {

constexpr std::size_t cache_line = 64;
/// The other end may take so many while more are copied.
constexpr std::size_t published_at_once = std::size_t{256} << 10U;

using Counter = std::atomic_ref<std::uint64_t>;
static_assert(Counter::is_always_lock_free, "processes share counters");

}  // namespace

std::size_t ByteRing::bytes_for(std::size_t capacity) {
    return 2 * cache_line + round_up(capacity, cache_line);
}

ByteRing::ByteRing(void* memory, std::size_t capacity, ByteCopy copy)
    : written_(static_cast<std::uint64_t*>(memory)),
      read_(written_ + cache_line / sizeof(std::uint64_t)),
      data_(static_cast<char*>(memory) + 2 * cache_line),
      capacity_(capacity),
      copy_(std::move(copy)) {
    if (!copy_) copy_ = [](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); };
}

std::size_t ByteRing::room() const {
    return capacity_ - (*written_ - Counter(*read_).load(std::memory_order_acquire));
}

std::size_t ByteRing::filled() const {
    return Counter(*written_).load(std::memory_order_acquire) - *read_;
}

std::size_t ByteRing::write(const void* data, std::size_t count) {
    const auto* from = static_cast<const char*>(data);
    const std::size_t wanted = std::min(count, room());
    for (std::size_t done = 0; done < wanted;) {
        const std::size_t at = *written_ % capacity_;
        const std::size_t piece = std::min({wanted - done, capacity_ - at, published_at_once});
        copy_(data_ + at, from + done, piece);
        Counter(*written_).store(*written_ + piece, std::memory_order_release);
        done += piece;
    }
    return wanted;
}

std::size_t ByteRing::read(void* data, std::size_t count) {
    auto* to = static_cast<char*>(data);
    const std::size_t wanted = std::min(count, filled());
    for (std::size_t done = 0; done < wanted;) {
        const std::size_t at = *read_ % capacity_;
        const std::size_t piece = std::min({wanted - done, capacity_ - at, published_at_once});
        copy_(to + done, data_ + at, piece);
        Counter(*read_).store(*read_ + piece, std::memory_order_release);
        done += piece;
    }
    return wanted;
}

}  // namespace loratrain
