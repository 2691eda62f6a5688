#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

/// Host access to an array of gradients, for reading it and for replacing it with sums. If backend
/// memory is host memory, it is the array itself; otherwise a copy, which the stream makes at the
/// point where the constructor was called. Nothing else may use the array until store().
class HostGradients {
  public:
    HostGradients(Backend& backend, float* gradients, std::size_t count)
        : backend_(backend), gradients_(gradients), count_(count) {
        if (backend.native_stream() == nullptr) return;
        const ReadPart all{gradients, count * sizeof(float)};
        copy_ = backend.read_later({&all, 1});
        sums_.resize(count);
    }

    /// Whether values() can be read now; does not wait.
    bool ready() { return !copy_ || copy_->ready(); }
    std::span<const float> values() {
        return {copy_ ? static_cast<const float*>(copy_->value()) : gradients_, count_};
    }
    /// Buffer for the sums; may be the same memory as values().
    std::span<float> sums() { return {copy_ ? sums_.data() : gradients_, count_}; }
    /// Makes sums() the gradients. Every sum must have been written.
    void store() {
        if (copy_) backend_.upload(gradients_, sums_.data(), count_ * sizeof(float));
    }

  private:
    Backend& backend_;
    float* gradients_;
    std::size_t count_;
    std::unique_ptr<Readback> copy_;  ///< null: in place
    std::vector<float> sums_;         ///< not in place
};

}  // namespace loratrain
