#include "train/adapter_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::size_t most_values = std::size_t{1} << 22;  // 16 MiB
constexpr const char* piece_word = "part ";

}  // namespace

AdapterPiece whole_piece(const PartKey& key, std::int32_t rank, std::vector<float> values) {
    const std::size_t total = values.size();
    return {key, rank, true, std::move(values), total};
}

void for_each_piece(AdapterPiece whole, const std::function<void(const AdapterPiece&)>& take) {
    if (whole.total <= most_values) return take(whole);
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

std::string to_text(const AdapterPiece& piece) {
    std::string text =
        cat(piece_word, number(piece.key.adapter), " ", static_cast<int>(piece.key.part), " ",
            static_cast<int>(piece.key.use), " ", piece.key.step, " ", piece.rank, " ",
            piece.last ? 1 : 0, " ", piece.total, "\n");
    const auto bytes = std::as_bytes(std::span(piece.values));
    text.reserve(text.size() + bytes.size());
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());  // NOLINT(*-cast)
    return text;
}

bool is_adapter_piece(const std::string& text) {
    return text.starts_with(piece_word);
}

AdapterPiece adapter_piece_from_text(const std::string& text) {
    LORATRAIN_CHECK(is_adapter_piece(text), "this is no part of an adapter");
    const std::size_t line = std::min(text.find('\n'), text.size() - 1) + 1;
    std::istringstream numbers(text.substr(std::strlen(piece_word), line));
    AdapterPiece piece;
    std::int32_t adapter = 0;
    std::uint32_t part = 0;
    std::uint32_t use = 0;
    numbers >> adapter >> part >> use >> piece.key.step >> piece.rank >> piece.last >> piece.total;
    const bool known = part < state_parts && use <= static_cast<std::uint32_t>(PartUse::best);
    LORATRAIN_CHECK(numbers && known && (text.size() - line) % sizeof(float) == 0,
                    "a part of an adapter is damaged");
    piece.key.adapter = AdapterId{adapter};
    piece.key.part = static_cast<StatePart>(part);
    piece.key.use = static_cast<PartUse>(use);
    piece.values.resize((text.size() - line) / sizeof(float));
    std::memcpy(piece.values.data(), text.data() + line, text.size() - line);
    return piece;
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
        values.reserve(piece.total);
        values.insert(values.end(), piece.values.begin(), piece.values.end());
    }
    if (piece.last) --found->second.ranks_left;
}

std::map<PartKey, AdapterParts::ByRank> AdapterParts::take_complete(PartUse use) {
    std::map<PartKey, ByRank> complete;
    std::erase_if(parts_, [&](auto& entry) {
        if (entry.first.use != use || entry.second.ranks_left > 0) return false;
        complete[entry.first] = std::move(entry.second.values);
        return true;
    });
    return complete;
}

}  // namespace loratrain
