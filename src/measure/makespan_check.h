#pragma once

#include <memory>
#include <span>
#include <string>

#include "plan/predict/simulate.h"

namespace loratrain {

/// Compares what the simulator predicts for training with what it took, from every empty pipeline
/// to the next. The first such stream is left out when others follow (it times algorithms and
/// fills caches), and so is one of more than `most_microbatches`. Root rank only.
class MakespanCheck {
  public:
    static constexpr std::size_t most_microbatches = 20000;

    MakespanCheck(const Job& job, const Plan& plan) : job_(job), plan_(plan) {}

    /// The next window of training, and the time since the one before ended.
    void add(const JointWindow& joint, double measured_seconds);
    bool compared() const { return measured_ > 0; }
    double predicted() const { return predicted_; }
    double measured() const { return measured_; }
    /// "predicted 12.3 s, measured 12.1 s (+1.7%) for 40 microbatches", and of how long a training
    /// that is a part, where streams were left out.
    std::string text() const;

  private:
    void end_stream();

    const Job& job_;
    const Plan& plan_;
    std::unique_ptr<Simulator> stream_;
    double stream_seconds_ = 0.0;
    std::size_t stream_microbatches_ = 0;
    bool warm_ = false;
    std::size_t microbatches_ = 0;
    double predicted_ = 0.0;
    double measured_ = 0.0;
    double trained_ = 0.0;  ///< with what is left out
};

/// What the simulator makes of a window from empty pipeline to empty pipeline, in seconds; of a
/// plan with one replica.
double predicted_seconds(const Job& job, const Plan& plan, const CostModel& costs,
                         const Window& window);

}  // namespace loratrain
