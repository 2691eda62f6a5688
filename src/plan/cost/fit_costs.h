#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "plan/cost/cost_model.h"
#include "plan/costs.h"

namespace loratrain {

/// Fits costs to measured seconds.

/// Measured seconds of a load. `seconds` may also be bytes: the memory of a microbatch has the same
/// form (mLoRA Eq. 5).
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

/// The line with the smallest sum of squared relative errors whose coefficients are all at least 0.
/// Relative errors let small loads count as much as large ones. Exact: every set of active
/// constraints is tried (Lawson and Hanson 1974, "Solving Least Squares Problems", chapter 23, for
/// four unknowns). A coefficient that the observations cannot separate from others is 0. None
/// without an observation of positive seconds.
std::optional<CostLine> fit_cost_line(std::span<const CostObservation> observations);

/// A line that is refined with every observation. The prior, scaled to the observations, counts as
/// `prior_count` observations for each coefficient, so that coefficients which the observations do
/// not determine keep their share. With every new observation the weight of earlier ones is
/// multiplied by `forgetting`.
class CostFit {
  public:
    explicit CostFit(const CostLine& prior, double prior_count = 4.0, double forgetting = 1.0)
        : prior_(prior), prior_count_(prior_count), forgetting_(forgetting) {}

    /// Ignores observations without positive seconds.
    void add(const CostObservation& observation);
    /// Adds another rank's observations against the same prior.
    void merge(const CostSums& sums) { sums_.add(sums); }
    const CostSums& sums() const { return sums_; }
    /// The refined line; the prior itself with fewer observations than `prior_count`.
    CostLine refined() const;

  private:
    CostLine prior_;
    double prior_count_;
    double forgetting_;
    CostSums sums_;
};

/// Extra seconds of the host for a load whose shape was new, beyond the same load later.
struct NewShapeObservation {
    std::int64_t nth = 0;  ///< number of the shape among its kind, from 1
    double rows = 0.0;     ///< of the shape
    double seconds = 0.0;
};

/// Fits HostCosts::new_rows. Needs three loads that took longer the first time; otherwise `prior`
/// stays.
NewShapeLine fit_new_shapes(std::span<const NewShapeObservation> observations,
                            const NewShapeLine& prior);

/// The same for the head, whose shapes have about one size: number of new shapes of a load, and
/// their seconds. Observations are in the order in which the shapes were met.
struct NewTargetsObservation {
    std::int64_t shapes = 0;
    double seconds = 0.0;
};
/// Fits HostCosts::new_targets: `first` is what the first load took beyond the mean of later ones.
/// `prior` stays without a first or without later loads.
NewShapeLine fit_new_targets(std::span<const NewTargetsObservation> observations,
                             const NewShapeLine& prior);

}  // namespace loratrain
