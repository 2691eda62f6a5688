#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// What layers of each kind of mixer and of MLP save, hold and compute with: a function per kind
/// over its struct. memory_model.h, frozen_layouts.h and offload.h add it up. T =
/// microbatch_tokens, e = bytes of the compute type.

/// Of each row of a layer so many columns, or so many bytes whatever rows there are.
struct SavedArray {
    std::uint64_t LayerSlotLayout::*at = nullptr;
    std::int64_t columns = 0;
    std::uint64_t element_bytes = 0;
    std::uint64_t fixed_bytes = 0;
};

/// A few of them.
class SavedArrays {
  public:
    void add(const SavedArray& array) { arrays_.at(count_++) = array; }
    const SavedArray* begin() const { return arrays_.data(); }
    const SavedArray* end() const { return arrays_.data() + count_; }

  private:
    static constexpr std::size_t most = 16;
    std::array<SavedArray, most> arrays_{};
    std::size_t count_ = 0;
};

/// What backward needs of a layer.
SavedArrays saved_arrays(const ReplicaView& view, const LayerSpec& layer);

/// Frozen of a layer beside the linears of its groups: norms, biases, a router and experts. These
/// do not stream.
std::uint64_t held_bytes(const ReplicaView& view, const LayerSpec& layer);

/// Adds what the layer's norms and kinds alone compute with.
void add_scratch(const ReplicaView& view, const LayerSpec& layer, WorkspaceLayout& layout);

/// Elements of the largest frozen matrix outside the groups that one product reads.
std::int64_t largest_product(const LayerSpec& layer, std::int64_t hidden_size);
/// Columns that the widest GEMM outside the groups reads and makes.
std::int64_t widest_product(const ReplicaView& view, const LayerSpec& layer);

}  // namespace loratrain
