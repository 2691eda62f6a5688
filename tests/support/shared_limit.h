#pragma once

#include <cstdlib>
#include <string>

namespace loratrain {

/// Sets LORATRAIN_MAX_SHARED_KIB while it lives: what CUDA backends that are made meanwhile go by.
class SharedLimit {
  public:
    explicit SharedLimit(int kib) {
        const char* before = std::getenv(name);
        was_set_ = before != nullptr;
        if (was_set_) before_ = before;
        setenv(name, std::to_string(kib).c_str(), 1);
    }
    ~SharedLimit() {
        if (was_set_) {
            setenv(name, before_.c_str(), 1);
        } else {
            unsetenv(name);
        }
    }
    SharedLimit(const SharedLimit&) = delete;
    SharedLimit& operator=(const SharedLimit&) = delete;

  private:
    static constexpr const char* name = "LORATRAIN_MAX_SHARED_KIB";
    bool was_set_ = false;
    std::string before_;
};

}  // namespace loratrain
