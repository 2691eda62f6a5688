#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "plan/predict/simulate.h"

namespace loratrain {

/// Compares the simulator's prediction, by the costs known before training, with the time that
/// training took. It compares streams, from one empty pipeline to the next; a stream of more than
/// `most` microbatches only up to the window that exceeds them. Root rank only.
class MakespanCheck {
  public:
    static constexpr std::size_t most_microbatches = 20000;  ///< their times are kept

    /// `met`: shapes that stages have met before training.
    MakespanCheck(const Job& job, const Plan& plan, std::size_t most = most_microbatches,
                  MetShapes met = {})
        : job_(job), plan_(plan), most_(most), met_(std::move(met)) {}

    /// The next window, and the seconds since the window before ended.
    void add(const JointWindow& joint, double measured_seconds);
    bool compared() const { return all_.measured > 0; }
    double predicted() const { return all_.predicted; }
    double measured() const { return all_.measured; }
    /// "predicted 12.3 s, measured 12.1 s (+1.7%) for 40 microbatches". With several streams also
    /// the same without the first one, which warms up. If a part was left out, also the whole time.
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

/// Seconds that the simulator predicts for a window from an empty pipeline to an empty pipeline,
/// for a plan with one replica.
double predicted_seconds(const Job& job, const Plan& plan, const CostModel& costs,
                         const Window& window);

}  // namespace loratrain
