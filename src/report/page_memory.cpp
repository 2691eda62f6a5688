#include <algorithm>
#include <array>

#include "base/text.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

struct Part {
    const char* name;
    std::uint64_t MemoryPlan::*bytes;
};
constexpr std::array<Part, 5> parts{{{"frozen weights", &MemoryPlan::weights},
                                     {"adapters", &MemoryPlan::adapters},
                                     {"activations", &MemoryPlan::activations},
                                     {"workspace", &MemoryPlan::workspace},
                                     {"engine", &MemoryPlan::engine}}};

constexpr double bar_left = 70.0;
constexpr double bar_width = 720.0;
constexpr double row_height = 34.0;

double most_bytes(const RunRecord& run) {
    std::uint64_t most = 1;
    for (const MemoryPlan& rank : run.plan->memory) most = std::max(most, rank.total());
    for (const MeasuredMemory& rank : run.memory) most = std::max(most, rank.allocated);
    return static_cast<double>(most);
}

std::string rectangle(double x, double y, double width, double height, const std::string& css,
                      const std::string& title) {
    return cat("<rect class=\"", css, "\" x=\"", format_fixed(x, 1), "\" y=\"", format_fixed(y, 1),
               "\" width=\"", format_fixed(width, 1), "\" height=\"", height, "\"><title>",
               html::escape(title), "</title></rect>\n");
}

std::string rank_bars(const RunRecord& run, std::size_t rank, double scale) {
    const double y = row_height * static_cast<double>(rank) + 6.0;
    std::string markup = cat("<text x=\"0\" y=\"", y + 14, "\">rank ", rank, "</text>\n");
    const MemoryPlan& plan = run.plan->memory[rank];
    double x = bar_left;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::uint64_t bytes = plan.*parts[p].bytes;
        const double width = static_cast<double>(bytes) * scale;
        markup +=
            rectangle(x, y, width, 13, cat("c", p), cat(parts[p].name, " ", human_bytes(bytes)));
        x += width;
    }
    std::string text = "planned " + human_bytes(plan.total());
    if (rank < run.memory.size()) {
        const std::uint64_t bytes = run.memory[rank].allocated;
        markup += rectangle(bar_left, y + 15, static_cast<double>(bytes) * scale, 5, "c7",
                            "allocated " + human_bytes(bytes));
        text += ", allocated " + human_bytes(bytes);
    }
    return markup + cat("<text x=\"", bar_left + bar_width + 10, "\" y=\"", y + 14, "\">",
                        html::escape(text), "</text>\n");
}

}  // namespace

std::string memory(const RunRecord& run) {
    if (!run.plan || run.plan->memory.empty()) return "";
    const double scale = bar_width / most_bytes(run);
    std::string markup = "<h2>Memory per rank</h2>\n<div class=\"legend\">";
    for (std::size_t p = 0; p < parts.size(); ++p) {
        markup += cat("<span><i class=\"c", p, "\"></i>", parts[p].name, "</span>\n");
    }
    if (!run.memory.empty()) markup += "<span><i class=\"c7\"></i>allocated (below)</span>\n";
    const std::size_t ranks = run.plan->memory.size();
    markup += cat("</div>\n<figure><svg viewBox=\"0 0 1040 ",
                  row_height * static_cast<double>(ranks) + 6, "\" role=\"img\">\n");
    for (std::size_t r = 0; r < ranks; ++r) markup += rank_bars(run, r, scale);
    markup += "</svg></figure>\n";
    if (run.plan->bytes_per_rank > 0) {
        markup += "<p>A rank may use " + human_bytes(run.plan->bytes_per_rank) + ".</p>\n";
    }
    return markup;
}

}  // namespace loratrain::report
