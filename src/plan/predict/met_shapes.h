#pragma once

#include <array>
#include <cstdint>
#include <set>

#include "plan/cost/costs.h"
#include "plan/plan.h"

namespace loratrain {

/// The shapes of microbatches that stages have met. At a new one the host builds graphs of
/// attention (base/attention_shape.h: samples, the longest, tokens) and chooses algorithms for the
/// GEMMs of layers (base/gemm_shape.h: tokens, LoRA columns) and of the head (targets), each once a
/// run.
class MetShapes {
  public:
    /// Seconds of the stage's host for what is new to it in a microbatch, which from now on it has
    /// met. `stage`: its number, `part`: what it computes.
    double meet(std::size_t stage, const StagePlan& part, const HostCosts& host,
                const Microbatch& microbatch);

  private:
    enum class Kind : std::uint8_t { attention, attention_backward, rows, targets };
    using Shape = std::array<std::int64_t, 3>;
    bool is_new(std::size_t stage, Kind kind, const Shape& shape) {
        return met_
            .insert({static_cast<std::int64_t>(stage), static_cast<std::int64_t>(kind), shape[0],
                     shape[1], shape[2]})
            .second;
    }

    std::set<std::array<std::int64_t, 5>> met_;
};

}  // namespace loratrain
