#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "plan/cost/cost_model.h"
#include "plan/costs.h"

namespace loratrain {

/// What one load took. `seconds` may as well be bytes: the memory of a microbatch has the same form
/// (mLoRA Eq. 5).
struct CostObservation {
    double rows = 0.0;
    double squares = 0.0;
    double seconds = 0.0;
    double segments = 0.0;
};

inline constexpr std::size_t cost_coefficients = 4;

/// Sums of the normal equations of the relative errors (seconds - line) / reference, in the order
/// fixed, per_token, per_square, per_segment.
struct CostSums {
    std::array<std::array<double, cost_coefficients>, cost_coefficients> products{};
    std::array<double, cost_coefficients> results{};
    double count = 0.0;
    void add(const CostObservation& observation, double reference);
    void add(const CostSums& other);
};

/// The line without a negative coefficient of smallest sum of squared relative errors, so that
/// small loads count as much as large ones; exact (every set of active constraints is tried:
/// Lawson and Hanson 1974, "Solving Least Squares Problems", chapter 23, for four unknowns). A
/// coefficient that the observations do not tell from others is 0. None without an observation of
/// positive seconds.
std::optional<CostLine> fit_cost_line(std::span<const CostObservation> observations);

/// A line that follows observations as they come, from what was known before. The prior, scaled
/// to what has been observed, counts as `prior_count` observations for each coefficient: what the
/// observations do not tell keeps its share. An observation counts `forgetting` times as much with
/// every later one.
class CostFit {
  public:
    explicit CostFit(const CostLine& prior, double prior_count = 4.0, double forgetting = 1.0)
        : prior_(prior), prior_count_(prior_count), forgetting_(forgetting) {}

    /// Observations without positive seconds are left out.
    void add(const CostObservation& observation);
    /// What another rank has observed against the same prior.
    void merge(const CostSums& sums) { sums_.add(sums); }
    const CostSums& sums() const { return sums_; }
    /// The prior itself with fewer observations than `prior_count`.
    CostLine refined() const;

  private:
    CostLine prior_;
    double prior_count_;
    double forgetting_;
    CostSums sums_;
};

/// What the host took for a load whose rows' shape was new beyond what the same load takes again.
struct NewShapeObservation {
    std::int64_t nth = 0;  ///< which of its kind the shape was, from 1
    double rows = 0.0;     ///< of that shape
    double seconds = 0.0;
};

/// HostCosts::new_rows. The line's terms need three loads that took longer the first time, else
/// `prior`'s stay.
NewShapeLine fit_new_shapes(std::span<const NewShapeObservation> observations,
                            const NewShapeLine& prior);

/// The same of the head, whose shapes are of about one size: those of a load that were new, in the
/// order in which they were met, and what they took.
struct NewTargetsObservation {
    std::int64_t shapes = 0;
    double seconds = 0.0;
};
/// The first load tells what first ones take more than the later ones do in the mean; without any
/// of either `prior`.
NewShapeLine fit_new_targets(std::span<const NewTargetsObservation> observations,
                             const NewShapeLine& prior);

}  // namespace loratrain
