#include "base/text.h"
#include "report/page_parts.h"
#include "report/timeline_svg.h"

namespace loratrain::report {

std::string timeline(const RunRecord& run) {
    if (run.trace.empty()) return "";
    const TimeRange range = first_stretch(run.trace);
    const std::string title = cat(run.trace_measured ? "Measured" : "Simulated", ", the first ",
                                  format_fixed(range.to - range.from, 3), " s of training");
    return cat("<h2>Timeline of the first steps</h2>\n<figure>",
               timeline_svg(run.trace, range, title, adapter_names(run.job)), "</figure>\n");
}

}  // namespace loratrain::report
