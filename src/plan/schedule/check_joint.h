#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "plan/findings.h"
#include "plan/plan.h"

namespace loratrain {

/// The sums of batches over all stages of all replicas while their lists are executed symbolically
/// (check_window.h). Each stage comes to them, and steps their batches, in the order announced; a
/// sum is there once all have come to it. Stages are numbered over all replicas, batches as in the
/// stream.
class SharedSums {
  public:
    explicit SharedSums(std::size_t stages) : came_(stages, 0), stepped_(stages, 0) {}

    void announce(std::span<const std::int32_t> batches);
    /// The stage reduces the batch; whether it is its next one.
    bool come(std::size_t stage, std::int32_t batch);
    /// The stage steps the batch; whether it is its next one.
    bool step(std::size_t stage, std::int32_t batch);
    bool is_there(std::int32_t batch) const;
    /// Those announced that are not there.
    std::vector<std::int32_t> missing() const;
    /// Announced, and not stepped on all stages.
    std::size_t size() const { return announced_.size(); }

  private:
    bool pass(std::int64_t& place, std::int32_t batch) const;
    std::int64_t least_came() const;
    void forget();

    std::deque<std::int32_t> announced_;
    std::int64_t first_ = 0;  ///< place of the first of them in the stream
    std::vector<std::int64_t> came_;
    std::vector<std::int64_t> stepped_;
};

/// What windows of replicas say of rounds and batches: the same, and in their order each training
/// batch is announced once to be reduced, where there are several.
void check_agreement(const JointWindow& joint, Findings& findings);
/// By the end of the window what must be is reduced: all of the windows before and of its rounds
/// but the last, which is reduced too where it drains or has no round.
void check_reduced(const JointWindow& joint, const SharedSums& sums, Findings& findings);

}  // namespace loratrain
