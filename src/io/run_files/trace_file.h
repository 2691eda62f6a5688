#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Something that a rank did for a while. Names and categories are the same for measured and for
/// simulated times, so that both can be laid side by side:
///   "forward 3", "backward 3": microbatch 3 since the start of the trace; args: tokens, adapters
///   "step a 4": optimizer step 4 of adapter a; args: adapters
///   anything else: categories "wait", "send", ...; thread 1 where it overlaps with computation.
struct TraceSpan {
    std::int32_t rank = 0;
    std::int32_t thread = 0;  ///< 0 = computation, 1 = messages beside it
    std::string name;
    std::string category;  ///< "forward", "backward", "step", ...
    double start_s = 0.0;  ///< seconds since a moment that all ranks share
    double end_s = 0.0;
    std::vector<std::pair<std::string, std::string>> args;  ///< shown beside it
};

inline constexpr const char* trace_file_name = "trace.json";

/// An adapter's part of a microbatch.
struct TraceShare {
    std::string adapter;
    std::int64_t tokens = 0;
};
/// The args {"tokens", "300"}, {"adapters", "a 200, b 100"} of a span.
std::vector<std::pair<std::string, std::string>> share_args(const std::vector<TraceShare>& shares);
/// The shares of a span that has such args, else none.
std::vector<TraceShare> shares_of(const TraceSpan& span);

/// Spans as a Chrome trace, which chrome://tracing and ui.perfetto.dev open: one process per rank
/// ("rank 0"), complete events ("ph": "X") in microseconds, sorted by rank and start. `about` goes
/// into otherData: model, policy, where the times come from.
std::string trace_to_json(std::vector<TraceSpan> spans,
                          const std::vector<std::pair<std::string, std::string>>& about);

/// What trace_to_json wrote (its microseconds, so times to about 1 ns). Throws InputError naming
/// `where` when the text is no such trace.
std::vector<TraceSpan> trace_from_json(const std::string& text, const std::string& where);

}  // namespace loratrain
