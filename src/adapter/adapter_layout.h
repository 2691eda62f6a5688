#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "adapter/tensor_cut.h"
#include "config/job.h"
#include "io/safetensors.h"
#include "plan/stage_layers.h"
#include "plan/tensor_shard.h"

namespace loratrain {

/// The flat fp32 arrays of an adapter.
enum class StatePart : std::uint8_t { parameters, first_moments, second_moments, gradients };
inline constexpr std::size_t state_parts = 4;

/// Elements [first, first + count) of an array.
struct ArrayRange {
    std::int64_t first = 0;
    std::int64_t count = 0;
};

/// A tensor of an adapter, and where it lies in each array that has it.
struct PlacedTensor {
    std::int32_t layer = 0;  ///< of the model
    Linear linear{};
    std::int32_t expert = no_expert;  ///< whose linear (is_in_experts)
    std::size_t of_form = 0;          ///< index in AdapterForm::tensors
    std::vector<std::int64_t> shape;
    ArrayRange range;
    TensorCut cut;  ///< what of the whole tensor this is: all of it unless there are lanes
};

/// Which tensors an adapter has in a range of layers, and where in its arrays. Trained tensors come
/// first, rate group by rate group, so that an optimizer step is one op per group; then those that
/// are frozen, which only the parameters have. In each of these parts layers ascend; in a layer the
/// linear groups are in order; in a group the tensors of the form, each for all of its linears. So
/// the arrays of LoRA have in a group first every A, then every B; of linears in experts one after
/// another that of each expert.
///
/// Of several lanes each has its part of the axis along which W is cut (lane_slice), of A for o and
/// down and of B for the others; the tensor without that axis is whole on all of them, and what a
/// lane computes of its gradient is a part of the sum.
class AdapterLayout {
  public:
    AdapterLayout() = default;
    /// `model`: the whole one. Its outer layers have one of outer_linears alone.
    AdapterLayout(const AdapterJob& adapter, const ModelSpec& model, const LayerRange& layers,
                  const TensorLane& lane = {});

    /// Elements of an array.
    std::int64_t count(StatePart part) const {
        return part == StatePart::parameters ? total_ : trained_;
    }
    /// In the order of the arrays.
    std::span<const PlacedTensor> tensors(StatePart part) const {
        return {tensors_.data(),
                part == StatePart::parameters ? tensors_.size() : trained_tensors_};
    }
    std::span<const ArrayRange> rate_groups() const { return rate_groups_; }
    bool is_trained(const PlacedTensor& tensor) const { return tensor.range.first < trained_; }
    /// Null where the layer is none of these, the linear no target or the role none of the form's.
    /// Of linears in experts that of the first, which the others follow.
    const PlacedTensor* find(std::int32_t layer, Linear linear, TensorRole role) const;

  private:
    void place(PlacedTensor tensor);
    std::size_t slot(std::int32_t layer, Linear linear, std::size_t of_form) const;

    LayerRange layers_;
    std::vector<TensorRole> roles_;  ///< of the form's tensors
    std::vector<PlacedTensor> tensors_;
    std::vector<std::int32_t> index_;  ///< in tensors_, by slot(); -1 = no target
    std::vector<ArrayRange> rate_groups_;
    std::size_t trained_tensors_ = 0;
    std::int64_t trained_ = 0;
    std::int64_t total_ = 0;
};

/// The tensor with its name in files and its shape, without values.
NamedTensor named_tensor(const AdapterJob& adapter, const PlacedTensor& tensor);

/// Those of an adapter in a range of layers that an array has, whole, in its order.
std::vector<NamedTensor> adapter_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                         const LayerRange& layers, StatePart part);

}  // namespace loratrain
