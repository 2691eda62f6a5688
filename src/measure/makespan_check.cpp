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
        stream_->count_new_shapes(met_);
        stream_seconds_ = 0.0;
        stream_microbatches_ = 0;
    }
    if (!stream_) return;
    stream_->add(joint);
    stream_seconds_ += measured_seconds;
    for (const Window& part : joint.replicas) stream_microbatches_ += part.microbatches.size();
    if (window.drains) {
        end_stream(stream_->timeline().makespan());
    } else if (stream_microbatches_ > most_) {
        end_stream(stream_->reached());
    }
}

void MakespanCheck::end_stream(double predicted) {
    const bool first = !compared();
    all_.predicted += predicted;
    all_.measured += stream_seconds_;
    all_.microbatches += stream_microbatches_;
    if (first) first_ = all_;
    stream_.reset();
}

std::string MakespanCheck::Sums::text() const {
    const double error = 100.0 * (predicted / measured - 1.0);
    return cat("predicted ", format_fixed(predicted, 2), " s, measured ", format_fixed(measured, 2),
               " s (", error < 0 ? "" : "+", format_fixed(error, 1), "%) for ", microbatches,
               " microbatches");
}

std::string MakespanCheck::text() const {
    std::string text = all_.text();
    const Sums warm{all_.predicted - first_.predicted, all_.measured - first_.measured,
                    all_.microbatches - first_.microbatches};
    if (warm.microbatches > 0) {
        text += cat("; after the first stretch, which warms up, ", warm.text());
    }
    if (trained_ <= worth_telling * all_.measured) return text;
    return cat(text, "; of ", format_fixed(trained_, 2),
               " s trained, long streams are compared only at their beginning");
}

}  // namespace loratrain
