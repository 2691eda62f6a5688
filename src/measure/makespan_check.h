#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "plan/predict/simulate.h"

namespace loratrain {

/// Compares what the simulator predicts for training, by the costs that were known before it, with
/// what it took, from every empty pipeline to the next, or to the end of the window with which a
/// stream has more than `most` microbatches: the rest of it is left out. Root rank only.
class MakespanCheck {
  public:
    static constexpr std::size_t most_microbatches = 20000;  ///< their times are kept

    /// `met`: shapes that stages have met before the training.
    MakespanCheck(const Job& job, const Plan& plan, std::size_t most = most_microbatches,
                  MetShapes met = {})
        : job_(job), plan_(plan), most_(most), met_(std::move(met)) {}

    /// The next window of training, and the time since the one before ended.
    void add(const JointWindow& joint, double measured_seconds);
    bool compared() const { return all_.measured > 0; }
    double predicted() const { return all_.predicted; }
    double measured() const { return all_.measured; }
    /// "predicted 12.3 s, measured 12.1 s (+1.7%) for 40 microbatches", of several streams what
    /// those after the first, which warms up, come to, and of how long a training that is a part,
    /// where something was left out.
    std::string text() const;

  private:
    struct Sums {
        double predicted = 0.0;
        double measured = 0.0;
        std::size_t microbatches = 0;
        std::string text() const;
    };

    void end_stream(double predicted);

    const Job& job_;
    const Plan& plan_;
    std::size_t most_;
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
