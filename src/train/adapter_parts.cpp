#include "train/adapter_parts.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/pages.h"

namespace loratrain {

namespace {

constexpr std::size_t most_values = std::size_t{1} << 22;  // 16 MiB

}  // namespace

AdapterPiece whole_piece(const PartKey& key, std::int32_t rank, std::vector<float> values) {
    const std::size_t total = values.size();
    return {key, rank, true, std::move(values), total};
}

void for_each_piece(AdapterPiece whole, const std::function<void(AdapterPiece)>& take) {
    if (whole.total <= most_values) return take(std::move(whole));
    for (std::size_t first = 0; first < whole.total; first += most_values) {
        const std::size_t size = std::min(most_values, whole.total - first);
        const auto own = std::span(whole.values).subspan(first, size);
        take({whole.key,
              whole.rank,
              first + size == whole.total,
              {own.begin(), own.end()},
              whole.total});
    }
}

void AdapterParts::expect(const PartKey& key, std::int32_t ranks) {
    parts_[key].ranks_left = ranks;
}

void AdapterParts::add(AdapterPiece piece) {
    const auto found = parts_.find(piece.key);
    LORATRAIN_CHECK(found != parts_.end(), "adapter ", number(piece.key.adapter),
                    " is not expected");
    std::vector<float>& values = found->second.values[piece.rank];
    if (piece.last && values.empty()) {
        values = std::move(piece.values);
    } else {
        reserve_large(values, piece.total);
        values.insert(values.end(), piece.values.begin(), piece.values.end());
    }
    if (piece.last) --found->second.ranks_left;
}

std::map<PartKey, AdapterParts::ByRank> AdapterParts::take_complete(PartUse use) {
    std::map<PartKey, ByRank> complete;
    for (auto next = parts_.begin(); next != parts_.end();) {
        if (next->first.use != use || next->second.ranks_left > 0) {
            ++next;
            continue;
        }
        complete[next->first] = std::move(next->second.values);  // std::erase_if would copy them
        next = parts_.erase(next);
    }
    return complete;
}

}  // namespace loratrain
