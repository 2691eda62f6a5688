#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>

#include "base/error.h"

namespace loratrain {

/// Numbers that name things: types that do not mix, spans of adapters, and lists whose numbers
/// stay when the oldest entries leave.

enum class AdapterId : std::int32_t {};     ///< position in Job::adapters
enum class DatasetId : std::int32_t {};     ///< position in Job::datasets
enum class MicrobatchId : std::int32_t {};  ///< position in Window::microbatches

/// The id as an array index.
template <class Id>
constexpr std::size_t index(Id id) {
    return static_cast<std::size_t>(id);
}
template <class Id>
constexpr std::int32_t number(Id id) {
    return static_cast<std::int32_t>(id);
}

/// The adapters numbered [begin, end); by default all adapters, those that are added later too.
struct AdapterSpan {
    std::int32_t begin = 0;
    std::int32_t end = std::numeric_limits<std::int32_t>::max();

    constexpr bool contains(AdapterId id) const { return begin <= number(id) && number(id) < end; }
    constexpr bool is_all() const { return *this == AdapterSpan{}; }
    friend constexpr bool operator==(const AdapterSpan&, const AdapterSpan&) = default;
};

/// Which pipeline messages between two ranks; each channel delivers in order.
enum class Channel : std::uint8_t {
    forward,   ///< activations, to the next stage
    backward,  ///< gradients, to the stage before
    norms,     ///< totals of gradient norms, to the next stage
};

/// Values numbered 0, 1, ... in the order in which they are appended. Dropping the oldest values
/// leaves the numbers of the others as they are.
template <class T>
class Numbered {
  public:
    void push_back(T value) { values_.push_back(std::move(value)); }

    /// Error if the value has been dropped or has not been appended yet.
    const T& operator[](std::int32_t number) const {
        LORATRAIN_CHECK(holds(number), "number ", number, " of ", first_, " to ", end());
        return values_[static_cast<std::size_t>(number - first_)];
    }
    bool holds(std::int32_t number) const { return number >= first_ && number < end(); }

    /// Drops the values with numbers below `number`.
    void drop_below(std::int32_t number) {
        for (; first_ < number && !values_.empty(); ++first_) values_.pop_front();
    }

    std::int32_t end() const { return first_ + static_cast<std::int32_t>(values_.size()); }
    std::size_t size() const { return values_.size(); }  ///< values that are held

  private:
    std::deque<T> values_;
    std::int32_t first_ = 0;
};

}  // namespace loratrain
