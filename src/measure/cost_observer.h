#pragma once

#include <array>
#include <cstdint>

#include "plan/cost/fit_costs.h"
#include "plan/plan.h"

namespace loratrain {

/// Refines a cost model from what a stage's microbatches take while it trains. What layers and head
/// have in a stage's time is found by what its backwards take, which have no head. Times of
/// microbatches that the host holds up, by the prior, are the host's.
class CostObserver {
  public:
    /// `stages` as the pipeline has them.
    CostObserver(const CostModel& prior, const StagePlan& stage, std::size_t stages,
                 Recompute recompute);

    /// Seconds of a forward and a backward of this stage, on its stream. Times far off those so far
    /// are left out (the first run of a shape, a pause of the host).
    void forward(const AdapterLoads& loads, double seconds);
    void backward(const AdapterLoads& loads, double seconds);
    std::int64_t observations() const;

    /// Of forwards, backwards, the head and the host.
    using Sums = std::array<CostSums, 4>;
    Sums sums() const;
    /// Of another stage.
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
