#include "session/run_preview.h"

#include "base/log.h"
#include "base/text.h"
#include "config/job_words.h"
#include "io/files.h"
#include "plan/predict/predict.h"
#include "plan/replica_view.h"
#include "report/timeline_svg.h"

namespace loratrain {

namespace {

constexpr std::int32_t rounds_drawn = 4;

}  // namespace

void write_pictures(const std::string& dir, const Job& job, const Plan& plan,
                    const Timeline& timeline) {
    make_directory(dir);
    const std::vector<TraceSpan> spans = trace_of(job, plan, timeline);
    const std::string policy = word_of(schedule_policy_words, job.schedule.policy);
    const std::string title = cat("Simulated start on ", plan.memory.size(), " ranks, policy ",
                                  policy, ", costs ", prediction_source(plan));
    write_text_atomic(dir + "/timeline.svg",
                      timeline_svg(spans, first_stretch(spans), title, adapter_names(job)));
    write_text_atomic(dir + "/" + trace_file_name,
                      trace_to_json(spans, {{"times", "simulated"},
                                            {"costs", prediction_source(plan)},
                                            {"policy", policy}}));
}

void write_preview(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets) {
    const auto write = [&] {
        Simulator simulator(job, plan);
        simulator.add(plan_joint_window(job, plan, datasets, at_start(plan), rounds_drawn));
        write_pictures(cat(job.run.dir, "/", preview_name), job, plan, simulator.timeline());
    };
    warn_at_failure(write, "no preview: ");
}

}  // namespace loratrain
