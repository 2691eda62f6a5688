#pragma once

#include <array>
#include <cstdint>

#include "plan/cost/fit_costs.h"
#include "plan/plan.h"

namespace loratrain {

/// Refines a cost model with the times of a stage's microbatches while it trains. Backwards have no
/// head, so they separate the layers' part of a stage's time from the head's. If the prior says
/// that the host holds a microbatch up, its time counts for the host.
class CostObserver {
  public:
    /// `stages`: how many the pipeline has.
    CostObserver(const CostModel& prior, const StagePlan& stage, std::size_t stages,
                 Recompute recompute);

    /// A forward or a backward of this stage took `seconds` on its stream. Outliers are left out
    /// (the first run of a shape, a pause of the host).
    void forward(const AdapterLoads& loads, double seconds);
    void backward(const AdapterLoads& loads, double seconds);
    std::int64_t observations() const;

    /// The fits' sums: forwards, backwards, the head, the host.
    using Sums = std::array<CostSums, 4>;
    Sums sums() const;
    /// Adds the sums of another stage.
    void add(const Sums& sums);

    /// The prior with its lines refined.
    CostModel refined() const;

  private:
    static double one_layer(const CostLine& line, const AdapterLoads& loads);
    bool held_up(const AdapterLoads& loads, double seconds, double expected);
    HostCosts refined_host() const;
    double scale_of_layers(const AdapterLoads& loads) const;

    CostModel prior_;
    StagePlan stage_;
    std::size_t stages_;
    Recompute recompute_;
    CostFit forward_;
    CostFit backward_;
    CostFit head_;
    CostFit host_;  ///< of a layer's forward and backward; rows = segments
};

}  // namespace loratrain
