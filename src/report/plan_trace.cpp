#include "report/plan_trace.h"

#include "base/text.h"
#include "plan/action_traits.h"

namespace loratrain {

namespace {

std::vector<TraceShare> shares_in(const Job& job, const Microbatch& microbatch) {
    std::vector<TraceShare> shares;
    for (const Segment& segment : microbatch.segments) {
        shares.push_back({job.adapter(segment.adapter).name, segment.tokens()});
    }
    return shares;
}

TraceSpan trace_span(const Job& job, const Timeline& timeline, const TimelineSpan& span) {
    TraceSpan trace;
    trace.start_s = span.start;
    trace.end_s = span.end;
    if (traits_of(span.kind).number == ActionNumber::batch) {
        const BatchPlan& batch = timeline.batches[static_cast<std::size_t>(span.batch)];
        const std::string& adapter = job.adapter(batch.adapter).name;
        trace.category = traits_of(span.kind).word;
        trace.name = cat(trace.category, " ", adapter, " ", batch.step + 1);
        trace.args = share_args({{adapter, batch.tokens}});
        return trace;
    }
    trace.category = traits_of(span.kind).word;
    trace.name = cat(trace.category, " ", span.microbatch);
    trace.args = share_args(
        shares_in(job, timeline.microbatches[static_cast<std::size_t>(span.microbatch)]));
    return trace;
}

}  // namespace

std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline) {
    std::vector<TraceSpan> spans;
    auto of_stage = timeline.stages.begin();
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (const TimelineSpan& span : *of_stage++) {
                spans.push_back(trace_span(job, timeline, span));
                spans.back().rank = stage.rank;
            }
        }
    }
    return spans;
}

std::vector<std::string> adapter_names(const Job& job) {
    std::vector<std::string> names;
    for (const AdapterJob& adapter : job.adapters) names.push_back(adapter.name);
    return names;
}

}  // namespace loratrain
