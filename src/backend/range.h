#pragma once

#include "backend/backend.h"

namespace loratrain {

/// A named stretch of host time in a profiler's timeline (NVTX on CUDA, nothing elsewhere), as long
/// as the object lives. `number` tells equal names apart (layer, microbatch).
class Range {
  public:
    Range(Backend& backend, const char* name, std::int64_t number = 0) : backend_(backend) {
        backend_.push_range(name, number);
    }
    ~Range() { backend_.pop_range(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

  private:
    Backend& backend_;
};

}  // namespace loratrain
