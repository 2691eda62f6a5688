#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace loratrain {

/// Messages of a checker. The first `most` are kept.
class Findings {
  public:
    template <class... Args>
    void add(const Args&... args) {
        ++count_;
        if (list_.size() < most) list_.push_back(cat(args...));
    }
    bool empty() const { return count_ == 0; }
    std::vector<std::string> take() {
        if (count_ > list_.size()) list_.push_back(cat("and ", count_ - list_.size(), " more"));
        return std::move(list_);
    }

  private:
    static constexpr std::size_t most = 20;
    std::size_t count_ = 0;
    std::vector<std::string> list_;
};

}  // namespace loratrain
