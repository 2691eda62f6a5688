#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/tensor.h"

namespace loratrain {

/// A group of ranks that compute parts of the same numbers: all or some lanes of a tensor-parallel
/// stage. Every rank of the group makes the same calls in the same order. Calls act on backend
/// memory, in order with the backend's operators.
class RankGroup {
  public:
    virtual ~RankGroup() = default;
    virtual std::int32_t index() const = 0;  ///< of this rank in the group
    virtual std::int32_t size() const = 0;

    /// values = sum of all ranks' values. Bits are equal on all ranks, and reproducible on the same
    /// machines. All ranks give the same shape, rows without gaps, in compute type or (gradients)
    /// fp32.
    virtual void all_reduce(const TensorView& values) = 0;
    /// all[i * bytes, (i + 1) * bytes) = rank i's bytes at `own`, which may be their place in
    /// `all`.
    virtual void all_gather(const void* own, std::size_t bytes, void* all) = 0;
};

/// A group of one rank.
class LoneRank final : public RankGroup {
  public:
    std::int32_t index() const override { return 0; }
    std::int32_t size() const override { return 1; }
    void all_reduce(const TensorView& /*values*/) override {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        if (own != all) std::memmove(all, own, bytes);
    }
};

/// The groups of a rank of a stage; not owned.
struct StageLanes {
    RankGroup* all = nullptr;  ///< the stage's lanes
    /// The lanes that have this lane's key-value heads.
    RankGroup* key_value_sharers = nullptr;

    std::int32_t index() const { return all->index(); }
    std::int32_t count() const { return all->size(); }
    /// True on the lane that adds terms which enter a sum over the lanes once.
    bool is_first() const { return index() == 0; }
};

/// The groups of a stage of one rank.
inline StageLanes one_lane() {
    static LoneRank lone;
    return {&lone, &lone};
}

}  // namespace loratrain
