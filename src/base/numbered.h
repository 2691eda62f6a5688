#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/error.h"

namespace loratrain {

/// Values numbered from 0 in the order in which they come. The oldest may leave; numbers stay.
template <class T>
class Numbered {
  public:
    void push_back(T value) { values_.push_back(std::move(value)); }

    /// Error where the value has left or has not come.
    const T& operator[](std::int32_t number) const {
        LORATRAIN_CHECK(holds(number), "number ", number, " of ", first_, " to ", end());
        return values_[static_cast<std::size_t>(number - first_)];
    }
    bool holds(std::int32_t number) const { return number >= first_ && number < end(); }

    /// Those below `number` leave.
    void drop_below(std::int32_t number) {
        for (; first_ < number && !values_.empty(); ++first_) values_.pop_front();
    }

    std::int32_t end() const { return first_ + static_cast<std::int32_t>(values_.size()); }
    std::size_t size() const { return values_.size(); }  ///< that are held

  private:
    std::deque<T> values_;
    std::int32_t first_ = 0;
};

}  // namespace loratrain
