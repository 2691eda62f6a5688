#include "train/report.h"

#include <utility>

#include "base/wire.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, PartKey& key) {
    archive.list(key.adapter, below(state_parts, key.part), below(part_uses, key.use), key.step);
}

template <class Archive>
void fields(Archive& archive, AdapterPiece& piece) {
    archive.list(piece.key, piece.rank, piece.last, piece.total, piece.values);
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
    archive.list(result.adapter, result.step, result.denominator, result.loss_sum,
                 result.exact_samples, result.samples, result.replica, result.training,
                 result.rewards, result.files);
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
