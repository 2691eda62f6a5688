#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "plan/findings.h"
#include "plan/plan.h"

namespace loratrain {

/// Checks that the windows of several replicas agree.

/// The sums of batches over all stages of all replicas during symbolic execution (check_window.h).
/// Each stage reduces and steps the batches in the announced order. A sum is there once all stages
/// have reduced the batch. Stages are numbered over all replicas, batches as in the stream.
class SharedSums {
  public:
    explicit SharedSums(std::size_t stages) : came_(stages, 0), stepped_(stages, 0) {}

    void announce(std::span<const std::int32_t> batches);
    /// The stage reduces the batch. True if it is the stage's next one.
    bool come(std::size_t stage, std::int32_t batch);
    /// The stage steps the batch. True if it is the stage's next one.
    bool step(std::size_t stage, std::int32_t batch);
    bool is_there(std::int32_t batch) const;
    /// Announced batches whose sums are not there.
    std::vector<std::int32_t> missing() const;
    /// Number of announced batches that some stage has not stepped.
    std::size_t size() const { return announced_.size(); }

  private:
    bool pass(std::int64_t& place, std::int32_t batch) const;
    std::int64_t least_came() const;
    void forget();

    std::deque<std::int32_t> announced_;
    std::int64_t first_ = 0;  ///< place of announced_[0] in the stream
    std::vector<std::int64_t> came_;
    std::vector<std::int64_t> stepped_;
};

/// Checks that the windows of replicas have the same rounds and batches and, with several replicas,
/// that JointWindow::reductions has each training batch once.
void check_agreement(const JointWindow& joint, Findings& findings);
/// Checks that by the end of the window all batches of earlier windows, and of its rounds except
/// the last, are reduced; the last one too if the window drains or has no round.
void check_reduced(const JointWindow& joint, const SharedSums& sums, Findings& findings);

}  // namespace loratrain
