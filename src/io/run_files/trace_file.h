#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Traces of what ranks do over time, as Chrome trace files.

/// An activity of a rank with its begin and end. Measured and simulated spans have the same names
/// and categories, so that both can be compared:
///   "forward 3", "backward 3"  microbatch 3 since the start of the trace; args: tokens, adapters
///   "step a 4"                 optimizer step 4 of adapter a; args: adapters
///   others                     categories "wait", "send", ...
struct TraceSpan {
    std::int32_t rank = 0;
    std::int32_t thread = 0;  ///< 0 = computation, 1 = messages that overlap with it
    std::string name;
    std::string category;  ///< "forward", "backward", "step", ...
    double start_s = 0.0;  ///< seconds since a moment common to all ranks
    double end_s = 0.0;
    std::vector<std::pair<std::string, std::string>> args;  ///< shown beside the span
};

inline constexpr const char* trace_file_name = "trace.json";

/// An adapter's part of a microbatch.
struct TraceShare {
    std::string adapter;
    std::int64_t tokens = 0;
};
/// Shares as args of a span: {"tokens", "300"}, {"adapters", "a 200, b 100"}.
std::vector<std::pair<std::string, std::string>> share_args(const std::vector<TraceShare>& shares);
/// The shares in a span's args; empty if it has none.
std::vector<TraceShare> shares_of(const TraceSpan& span);

/// Spans as a Chrome trace, for chrome://tracing and ui.perfetto.dev: one process per rank ("rank
/// 0"), complete events ("ph": "X") in microseconds, sorted by rank and start. `about` becomes
/// otherData: model, policy, the source of the times.
std::string trace_to_json(std::vector<TraceSpan> spans,
                          const std::vector<std::pair<std::string, std::string>>& about);

/// Reads what trace_to_json() wrote; times to about 1 ns. Throws InputError naming `where` if the
/// text is no such trace.
std::vector<TraceSpan> trace_from_json(const std::string& text, const std::string& where);

}  // namespace loratrain
