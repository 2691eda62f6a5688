#include "measure/makespan_check.h"

#include "base/text.h"

namespace loratrain {

namespace {

constexpr double worth_telling = 1.005;

}  // namespace

double predicted_seconds(const Job& job, const Plan& plan, const CostModel& costs,
                         const Window& window) {
    Simulator simulator(job, only_replica(plan), costs);
    simulator.add(window);
    return simulator.timeline().makespan();
}

void MakespanCheck::add(const JointWindow& joint, double measured_seconds) {
    const Window& window = joint.common();
    trained_ += measured_seconds;
    if (window.begins) {
        stream_ = std::make_unique<Simulator>(job_, plan_);
        stream_seconds_ = 0.0;
        stream_microbatches_ = 0;
    }
    if (!stream_) return;
    stream_->add(joint);
    stream_seconds_ += measured_seconds;
    for (const Window& part : joint.replicas) stream_microbatches_ += part.microbatches.size();
    if (stream_microbatches_ > most_microbatches) stream_.reset();
    if (stream_ && window.drains) end_stream();
}

void MakespanCheck::end_stream() {
    const bool forget_first = compared() && !warm_;
    if (forget_first) {
        microbatches_ = 0;
        predicted_ = measured_ = 0.0;
        warm_ = true;
    }
    microbatches_ += stream_microbatches_;
    predicted_ += stream_->timeline().makespan();
    measured_ += stream_seconds_;
    stream_.reset();
}

std::string MakespanCheck::text() const {
    const double error = 100.0 * (predicted_ / measured_ - 1.0);
    const std::string text = cat("predicted ", format_fixed(predicted_, 2), " s, measured ",
                                 format_fixed(measured_, 2), " s (", error < 0 ? "" : "+",
                                 format_fixed(error, 1), "%) for ", microbatches_, " microbatches");
    if (trained_ <= worth_telling * measured_) return text;
    return cat(text, ", of ", format_fixed(trained_, 2), " s trained: ",
               warm_ ? "the first stretch, which warms up, " : "what is not over or very long ",
               "is left out");
}

}  // namespace loratrain
