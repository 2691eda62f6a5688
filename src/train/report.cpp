#include "train/report.h"

#include <utility>

#include "base/wire.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, PartKey& key) {
    archive("adapter", key.adapter);
    archive("part", below(state_parts, key.part));
    archive("use", below(part_uses, key.use));
    archive("step", key.step);
}

template <class Archive>
void fields(Archive& archive, AdapterPiece& piece) {
    archive("key", piece.key);
    archive("rank", piece.rank);
    archive("last", piece.last);
    archive("total", piece.total);
    archive("values", piece.values);
}

template <class Archive>
void fields(Archive& archive, FileLoss& file) {
    archive("denominator", file.denominator);
    archive("loss_sum", file.loss_sum);
}

template <class Archive>
void fields(Archive& archive, RewardSums& sums) {
    RewardSums::Values values = sums.values();
    archive("rewards", values);
    if constexpr (Archive::reads) sums = RewardSums::of(values);
}

template <class Archive>
void fields(Archive& archive, EvalResult& result) {
    archive("adapter", result.adapter);
    archive("step", result.step);
    archive("denominator", result.denominator);
    archive("loss_sum", result.loss_sum);
    archive("exact_samples", result.exact_samples);
    archive("samples", result.samples);
    archive("replica", result.replica);
    archive("training", result.training);
    archive("rewards", result.rewards);
    archive("files", result.files);
}

template <class Archive>
void fields(Archive& archive, AdditionsReport& report) {
    archive("problems", report.problems);
}

void send_as_messages(Report report, const std::function<void(std::string)>& send) {
    auto* whole = std::get_if<AdapterPiece>(&report);
    if (whole == nullptr) return send(to_wire(report));
    for_each_piece(std::move(*whole),
                   [&](AdapterPiece piece) { send(to_wire(Report(std::move(piece)))); });
}

Report report_from_bytes(std::string_view bytes) {
    return from_wire<Report>(bytes, "a report");
}

}  // namespace loratrain
