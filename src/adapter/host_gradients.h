#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

/// An array of gradients where the host can read them and put sums in their place: the array itself
/// where the backend's memory is the host's, else a copy, which is taken when the stream comes to
/// the constructor's place. Until store() nothing else uses the array.
class HostGradients {
  public:
    HostGradients(Backend& backend, float* gradients, std::size_t count);

    /// Whether values() are there; does not wait.
    bool ready();
    std::span<const float> values();
    /// Where their sums go; may be the same memory.
    std::span<float> sums();
    /// The sums, of which all are there, become the gradients.
    void store();

  private:
    Backend& backend_;
    float* gradients_;
    std::size_t count_;
    std::unique_ptr<Readback> copy_;  ///< null: in place
    std::vector<float> sums_;         ///< not in place
};

}  // namespace loratrain
