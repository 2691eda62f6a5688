#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "backend/buffer.h"
#include "config/job.h"
#include "plan/tensor_shard.h"

namespace loratrain {

/// Buffers of a resident VeRA adapter on a stage, beside its tensors, in fp32. For every linear
/// that the adapter targets:
/// - the lane's corners of the fixed projections (io/adapters/exported_adapter.h): A [rank, in],
///   which the linears of a group share, and B [out, rank];
/// - `product`: the factor that B and the scales of one layer make (Backend::vera_product);
/// - `gradient`: the gradient of `product`, zero between uses.
class ProjectedFactors {
  public:
    ProjectedFactors() = default;
    /// Draws the projections and waits for the backend. `model` is the whole model.
    ProjectedFactors(const AdapterJob& adapter, const ModelSpec& model, const TensorLane& lane,
                     Backend& backend);

    struct Place {
        const float* a = nullptr;
        const float* b = nullptr;
        float* product = nullptr;
        float* gradient = nullptr;
    };
    /// Buffers of `linear`, which the adapter targets.
    Place at(Linear linear) const;

  private:
    struct Offsets {
        std::int64_t a = 0;
        std::int64_t b = 0;
        std::int64_t product = 0;
        std::int64_t gradient = 0;
    };

    Buffer floats_;
    std::array<Offsets, linear_count> offsets_{};
};

}  // namespace loratrain
