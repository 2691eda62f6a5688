#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Something that a rank did for a while.
struct TraceSpan {
    std::int32_t rank = 0;
    std::int32_t thread = 0;  ///< 0 = computation, 1 = waiting and messages
    std::string name;         ///< "forward 3"
    std::string category;     ///< "forward", "backward", "step", "wait", ...
    double start_s = 0.0;     ///< seconds since a moment that all ranks share
    double end_s = 0.0;
    std::vector<std::pair<std::string, std::string>> args;  ///< shown beside it
};

inline constexpr const char* trace_file_name = "trace.json";

/// Spans as a Chrome trace, which chrome://tracing and ui.perfetto.dev open: one process per rank
/// ("rank 0"), complete events ("ph": "X") in microseconds, sorted by rank and start. `about` goes
/// into otherData: model, policy, where the times come from.
std::string trace_to_json(std::vector<TraceSpan> spans,
                          const std::vector<std::pair<std::string, std::string>>& about);

/// What trace_to_json wrote (its microseconds, so times to about 1 ns). Throws InputError naming
/// `where` when the text is no such trace.
std::vector<TraceSpan> trace_from_json(const std::string& text, const std::string& where);

}  // namespace loratrain
