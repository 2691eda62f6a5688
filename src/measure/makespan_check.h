#pragma once

#include <memory>
#include <span>
#include <string>

#include "plan/predict/simulate.h"

namespace loratrain {

/// Compares what the simulator predicts for training, by the costs that were known before it, with
/// what it took, from every empty pipeline to the next; a stream of more than `most_microbatches`
/// is left out. Root rank only.
class MakespanCheck {
  public:
    static constexpr std::size_t most_microbatches = 20000;

    MakespanCheck(const Job& job, const Plan& plan) : job_(job), plan_(plan) {}

    /// The next window of training, and the time since the one before ended.
    void add(const JointWindow& joint, double measured_seconds);
    bool compared() const { return all_.measured > 0; }
    double predicted() const { return all_.predicted; }
    double measured() const { return all_.measured; }
    /// "predicted 12.3 s, measured 12.1 s (+1.7%) for 40 microbatches", of several streams what
    /// those after the first, which warms up, come to, and of how long a training that is a part,
    /// where streams were left out.
    std::string text() const;

  private:
    struct Sums {
        double predicted = 0.0;
        double measured = 0.0;
        std::size_t microbatches = 0;
        std::string text() const;
    };

    void end_stream();

    const Job& job_;
    const Plan& plan_;
    MetShapes met_;
    std::unique_ptr<Simulator> stream_;
    double stream_seconds_ = 0.0;
    std::size_t stream_microbatches_ = 0;
    Sums all_;
    Sums first_;            ///< of the first stream alone
    double trained_ = 0.0;  ///< with what is left out
};

/// What the simulator makes of a window from empty pipeline to empty pipeline, in seconds; of a
/// plan with one replica.
double predicted_seconds(const Job& job, const Plan& plan, const CostModel& costs,
                         const Window& window);

}  // namespace loratrain
