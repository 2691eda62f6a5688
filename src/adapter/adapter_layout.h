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

/// Where each tensor of an adapter lies in the adapter's flat arrays.

/// The flat fp32 arrays of an adapter.
enum class StatePart : std::uint8_t { parameters, first_moments, second_moments, gradients };
inline constexpr std::size_t state_parts = 4;

/// Elements [first, first + count) of an array.
struct ArrayRange {
    std::int64_t first = 0;
    std::int64_t count = 0;
};

/// A tensor of an adapter and its range in the flat arrays. The range is the same in every array
/// that has the tensor.
struct PlacedTensor {
    std::int32_t layer = 0;  ///< of the model
    Linear linear{};
    std::int32_t expert = no_expert;  ///< expert that the linear belongs to (is_in_experts)
    std::size_t of_form = 0;          ///< index in AdapterForm::tensors
    std::vector<std::int64_t> shape;
    ArrayRange range;
    TensorCut cut;  ///< this lane's part of the whole tensor; all of it without lanes
};

/// Layout of an adapter's flat arrays over a range of layers. The tensors' order is:
/// - trained tensors, rate group by rate group, so that an optimizer step is one op per group; then
///   frozen tensors, which only the parameter array has;
/// - within each of these parts, by ascending layer; within a layer, by linear group;
/// - within a linear group, by tensor of the form, each for all linears of the group. LoRA thus has
///   every A of the group, then every B. A linear in experts has one tensor per expert, in order.
///
/// With tensor-parallel lanes each lane holds its part of the axis along which W is cut
/// (lane_slice): of A for o and down, of B for the other linears. The tensor without that axis is
/// whole on every lane, and each lane computes a partial sum of its gradient. Of experts that lie
/// whole on a lane it has the tensors whole, and alone; those of other lanes' experts are empty.
class AdapterLayout {
  public:
    AdapterLayout() = default;
    /// `model` is the whole model. In its outer layers an adapter has only tensors of
    /// outer_linears.
    AdapterLayout(const AdapterJob& adapter, const ModelSpec& model, const LayerRange& layers,
                  const TensorLane& lane = {});

    /// Elements of an array.
    std::int64_t count(StatePart part) const {
        return part == StatePart::parameters ? total_ : trained_;
    }
    /// Tensors of the array, in its order.
    std::span<const PlacedTensor> tensors(StatePart part) const {
        return {tensors_.data(),
                part == StatePart::parameters ? tensors_.size() : trained_tensors_};
    }
    std::span<const ArrayRange> rate_groups() const { return rate_groups_; }
    bool is_trained(const PlacedTensor& tensor) const { return tensor.range.first < trained_; }
    /// The tensor; null if the layer is outside the range, the linear is no target, or the form has
    /// no such role. For a linear in experts it is the first expert's tensor; the other experts'
    /// follow.
    const PlacedTensor* find(std::int32_t layer, Linear linear, TensorRole role) const;

  private:
    void place(PlacedTensor tensor);
    std::size_t slot(std::int32_t layer, Linear linear, std::size_t of_form) const;

    LayerRange layers_;
    std::vector<TensorRole> roles_;  ///< roles of the form's tensors
    std::vector<PlacedTensor> tensors_;
    std::vector<std::int32_t> index_;  ///< in tensors_, by slot(); -1 = no target
    std::vector<ArrayRange> rate_groups_;
    std::size_t trained_tensors_ = 0;
    std::int64_t trained_ = 0;
    std::int64_t total_ = 0;
};

/// The tensor's name in files and its shape, without values.
NamedTensor named_tensor(const AdapterJob& adapter, const PlacedTensor& tensor);

/// Whole tensors of an adapter in a range of layers, those that array `part` has, in its order,
/// without values.
std::vector<NamedTensor> adapter_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                         const LayerRange& layers, StatePart part);

}  // namespace loratrain
