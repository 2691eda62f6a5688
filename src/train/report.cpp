#include "train/report.h"

#include <utility>

namespace loratrain {

void send_as_texts(Report report, const std::function<void(std::string)>& send) {
    if (auto* whole = std::get_if<AdapterPiece>(&report)) {
        for_each_piece(std::move(*whole), [&](const AdapterPiece& piece) { send(to_text(piece)); });
    } else if (const auto* additions = std::get_if<AdditionsReport>(&report)) {
        send(to_text(*additions));
    } else {
        send(to_text(std::span<const EvalResult>(std::get<std::vector<EvalResult>>(report))));
    }
}

Report report_from_text(const std::string& text) {
    if (is_adapter_piece(text)) return adapter_piece_from_text(text);
    if (is_additions_report(text)) return additions_report_from_text(text);
    return eval_results_from_text(text);
}

}  // namespace loratrain
