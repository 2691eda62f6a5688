#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/run_files/trace_file.h"
#include "plan/predict/simulate.h"

namespace loratrain {

/// Pictures of what ranks do when.

/// The stretch of a trace that a picture shows, in seconds.
struct TimeRange {
    double from = 0.0;
    double to = 0.0;
};

/// From the first span on, as far as no rank has more than `most` forwards, backwards and steps.
TimeRange first_stretch(const std::vector<TraceSpan>& spans, std::size_t most = 64);

/// Share of the range in which a rank does no forward, backward or step.
double idle_share(const std::vector<TraceSpan>& spans, std::int32_t rank, const TimeRange& range);

/// A picture of what every rank does when, a row per rank:
/// - a forward is pale, a backward full, in the colour of its adapter; adapters that share a
///   microbatch are bands in proportion to their tokens;
/// - a step is dark;
/// - grey is idle.
/// Times count from the start of the range. `adapters` give the order of colours, as on the report
/// page; others follow as they appear. The SVG needs no scripts, styles or fonts from elsewhere;
/// texts are escaped.
std::string timeline_svg(const std::vector<TraceSpan>& spans, const TimeRange& range,
                         const std::string& title, const std::vector<std::string>& adapters = {});

/// Spans of a trace for a simulated timeline of all the plan's replicas.
std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline);

/// Names of the job's adapters, in its order.
std::vector<std::string> adapter_names(const Job& job);

}  // namespace loratrain
