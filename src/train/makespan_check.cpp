#include "train/makespan_check.h"

#include "base/text.h"

namespace loratrain {

double predicted_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                         const CostModel& costs, const Window& window) {
    Simulator simulator(job, plan, datasets, costs);
    simulator.add(window);
    return simulator.timeline().makespan();
}

void MakespanCheck::add(const Window& window, double measured_seconds) {
    if (microbatches_ >= most_microbatches || window.evaluation) return;
    if (warm_) {
        microbatches_ += window.microbatches.size();
        predicted_ += predicted_seconds(job_, plan_, datasets_, plan_.costs, window);
        measured_ += measured_seconds;
    }
    warm_ = true;
}

std::string MakespanCheck::text() const {
    const double error = 100.0 * (predicted_ / measured_ - 1.0);
    return cat("predicted ", format_fixed(predicted_, 2), " s, measured ",
               format_fixed(measured_, 2), " s (", error < 0 ? "" : "+", format_fixed(error, 1),
               "%) for ", microbatches_, " microbatches");
}

}  // namespace loratrain
