#pragma once

#include <optional>
#include <span>
#include <string>

#include "plan/simulate.h"

namespace loratrain {

/// Compares what the simulator predicts for training windows with what they took. The first window
/// is left out (it times algorithms and fills caches), and so is what follows the first
/// `most_microbatches`. Root rank only.
class MakespanCheck {
  public:
    static constexpr std::size_t most_microbatches = 5000;

    MakespanCheck(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets)
        : job_(job), plan_(plan), datasets_(datasets) {}

    void add(const Window& window, double measured_seconds);
    bool compared() const { return measured_ > 0; }
    double predicted() const { return predicted_; }
    double measured() const { return measured_; }
    /// "predicted 12.3 s, measured 12.1 s (+1.7%)".
    std::string text() const;

  private:
    const Job& job_;
    const Plan& plan_;
    std::span<const DatasetInfo> datasets_;
    bool warm_ = false;
    std::size_t microbatches_ = 0;
    double predicted_ = 0.0;
    double measured_ = 0.0;
};

/// What the simulator makes of a window from empty pipeline to empty pipeline, in seconds.
double predicted_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                         const CostModel& costs, const Window& window);

}  // namespace loratrain
