#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/tensor.h"

namespace loratrain {

/// Ranks that compute parts of the same numbers: the lanes of a tensor-parallel stage, or some of
/// them. Every rank of the group makes the same calls in the same order; each acts on backend
/// memory, in the order of the backend's ops.
class RankGroup {
  public:
    virtual ~RankGroup() = default;
    virtual std::int32_t index() const = 0;  ///< of this rank in the group
    virtual std::int32_t size() const = 0;

    /// values = the sum of all ranks' values: equal bits on all ranks, the same in every run on the
    /// same machines. All give the same shape, one row behind the other; compute type, or the fp32
    /// of gradients.
    virtual void all_reduce(const TensorView& values) = 0;
    /// all[i * bytes, (i + 1) * bytes) = what rank i has at `own`; own may be its place in `all`.
    virtual void all_gather(const void* own, std::size_t bytes, void* all) = 0;
};

/// A rank that shares its numbers with nobody.
class LoneRank final : public RankGroup {
  public:
    std::int32_t index() const override { return 0; }
    std::int32_t size() const override { return 1; }
    void all_reduce(const TensorView& /*values*/) override {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        if (own != all) std::memmove(all, own, bytes);
    }
};

/// The groups that a rank of a stage is in; not owned.
struct StageLanes {
    RankGroup* all = nullptr;  ///< the stage's lanes
    /// Those of them that have this lane's key-value heads.
    RankGroup* key_value_sharers = nullptr;

    std::int32_t index() const { return all->index(); }
    std::int32_t count() const { return all->size(); }
    /// What enters a sum over the lanes once is added by the first one.
    bool is_first() const { return index() == 0; }
};

/// Of a stage that is one rank.
inline StageLanes one_lane() {
    static LoneRank lone;
    return {&lone, &lone};
}

}  // namespace loratrain
