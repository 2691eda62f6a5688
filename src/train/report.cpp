#include "train/report.h"

#include <utility>

namespace loratrain {

void send_as_texts(Report report, const std::function<void(std::string)>& send) {
    auto* piece = std::get_if<AdapterPiece>(&report);
    if (piece == nullptr) return send(report_to_text(report));
    for_each_piece(std::move(*piece), [&](const AdapterPiece& part) { send(to_text(part)); });
}

std::string report_to_text(const Report& report) {
    if (const auto* piece = std::get_if<AdapterPiece>(&report)) return to_text(*piece);
    if (const auto* additions = std::get_if<AdditionsReport>(&report)) return to_text(*additions);
    return to_text(std::span<const EvalResult>(std::get<std::vector<EvalResult>>(report)));
}

Report report_from_text(const std::string& text) {
    if (is_adapter_piece(text)) return adapter_piece_from_text(text);
    if (is_additions_report(text)) return additions_report_from_text(text);
    return eval_results_from_text(text);
}

}  // namespace loratrain
