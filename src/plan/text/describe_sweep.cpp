#include "plan/text/describe_prediction.h"

#include <algorithm>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::size_t picture_columns = 64;

std::string cut_text(std::int32_t replicas, std::int32_t tensor, std::int32_t stages) {
    return cat(replicas, " x {tp: ", tensor, ", pp: ", stages, "}");
}

std::string cut_text(const BaselineTime& time) {
    return cut_text(time.replicas, time.tensor, time.stages);
}

std::string cut_text(const SweepShape& shape) {
    return cut_text(shape.replicas, shape.tensor, shape.stages);
}

class ComparisonRows {
  public:
    explicit ComparisonRows(const SweepComparison& comparison) : comparison_(comparison) {}

    std::vector<TextRow> run() {
        const SweepPlan& plan = comparison_.deployment.plan;
        if (comparison_.min_gpu) {
            add("Min-GPU: each trial alone", cut_text(*comparison_.min_gpu),
                comparison_.min_gpu->seconds);
        }
        if (comparison_.max_gpu) {
            add("Max-GPU: each trial alone on all", cut_text(*comparison_.max_gpu),
                comparison_.max_gpu->seconds);
        }
        if (comparison_.packed_jobs) {
            const JobSchedule& schedule = *comparison_.packed_jobs;
            add("DTM and job planner (PLoRA)",
                cat(schedule.jobs.size(), " packed jobs, AR <= ", format_fixed(schedule.ar, 2)),
                schedule.seconds);
        }
        if (comparison_.one_pipeline) {
            add("one pipeline, refilled: as runs do", cut_text(comparison_.one_pipeline->shape),
                comparison_.one_pipeline->seconds);
        }
        add("best plan, refilled", cat(cut_text(plan.shape), ", AR <= ", format_fixed(plan.ar, 2)),
            plan.seconds);
        add("bound: longest trial, work / ranks", "", plan.bound);
        if (comparison_.eager_peft) {
            add("eager PEFT, each trial alone (estimate)",
                comparison_.min_gpu ? cat(comparison_.min_gpu->replicas, " at a time") : "",
                *comparison_.eager_peft);
        }
        return rows_;
    }

  private:
    void add(const std::string& way, const std::string& how, double seconds) {
        const double gain = comparison_.gain(seconds);
        rows_.push_back({way, how, human_duration(seconds),
                         gain > 0 ? format_fixed(gain, 2) : std::string("-")});
    }

    const SweepComparison& comparison_;
    std::vector<TextRow> rows_{{"way", "with", "time", "x as fast as Min-GPU"}};
};

std::string queue_line(const QueueRun& run, double all) {
    std::string line;
    for (std::size_t column = 0; column < picture_columns; ++column) {
        const double time = all * (static_cast<double>(column) + 0.5) / picture_columns;
        const auto count = std::count_if(
            run.spans.begin(), run.spans.end(),
            [&](const TrialSpan& span) { return span.begin <= time && time < span.end; });
        line += count == 0 ? '.' : count > 9 ? '+' : static_cast<char>('0' + count);
    }
    return line;
}

}  // namespace

std::string queue_picture(const SweepDeployment& deployment) {
    std::vector<TextRow> rows;
    for (std::size_t g = 0; g < deployment.runs.size(); ++g) {
        const QueueRun& run = deployment.runs[g];
        rows.push_back({cat("replica ", g), queue_line(run, deployment.plan.seconds),
                        cat(run.spans.size(), run.spans.size() == 1 ? " trial" : " trials"),
                        human_duration(run.seconds)});
    }
    return text_table(rows, 2);
}

std::string describe(const SweepComparison& comparison) {
    const SweepPlan& plan = comparison.deployment.plan;
    std::size_t trials = 0;
    for (const auto& queue : plan.queues) trials += queue.size();
    return cat("sweep of ", trials, " trials, by built-in costs; best: ", cut_text(plan.shape),
               ", microbatches of ", plan.shape.microbatch_tokens, " tokens, ",
               human_duration(plan.seconds), "\n", text_table(ComparisonRows(comparison).run(), 2),
               "trials at a time (+ = 10 or more):\n", queue_picture(comparison.deployment));
}

}  // namespace loratrain
