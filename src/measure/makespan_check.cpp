#include "measure/makespan_check.h"

#include "base/text.h"

namespace loratrain {

double predicted_seconds(const Job& job, const Plan& plan, const CostModel& costs,
                         const Window& window) {
    Simulator simulator(job, only_replica(plan), costs);
    simulator.add(window);
    return simulator.timeline().makespan();
}

void MakespanCheck::add(const Window& window, double measured_seconds) {
    if (window.evaluation) return;
    if (window.begins) {
        stretch_ = std::make_unique<Simulator>(job_, only_replica(plan_), plan_.costs);
        stretch_seconds_ = 0.0;
        stretch_microbatches_ = 0;
    }
    if (!stretch_) return;
    stretch_->add(window);
    stretch_seconds_ += measured_seconds;
    stretch_microbatches_ += window.microbatches.size();
    if (stretch_microbatches_ > most_microbatches) stretch_.reset();
    if (stretch_ && window.drains) end_stretch();
}

void MakespanCheck::end_stretch() {
    const bool forget_first = compared() && !warm_;
    if (forget_first) {
        microbatches_ = 0;
        predicted_ = measured_ = 0.0;
        warm_ = true;
    }
    microbatches_ += stretch_microbatches_;
    predicted_ += stretch_->timeline().makespan();
    measured_ += stretch_seconds_;
    stretch_.reset();
}

std::string MakespanCheck::text() const {
    const double error = 100.0 * (predicted_ / measured_ - 1.0);
    return cat("predicted ", format_fixed(predicted_, 2), " s, measured ",
               format_fixed(measured_, 2), " s (", error < 0 ? "" : "+", format_fixed(error, 1),
               "%) for ", microbatches_, " microbatches");
}

}  // namespace loratrain
