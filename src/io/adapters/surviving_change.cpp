#include "io/adapters/surviving_change.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "base/error.h"
#include "config/linears.h"

namespace loratrain {

void ChangeSums::add_row(std::int64_t cols, const float* d, const float* base, const float* merged,
                         const float* written) {
    for (std::int64_t i = 0; i < cols; ++i) {
        const double of = d[i];
        const double r = double{written[i]} - double{base[i]};
        const double error = double{written[i]} - double{merged[i]};
        change += of * of;
        along += r * of;
        left += r * r;
        rounded += error * error;
    }
}

void ChangeSums::add(const ChangeSums& row) {
    change += row.change;
    along += row.along;
    left += row.left;
    rounded += row.rounded;
}

SurvivingChange surviving_change(const ChangeSums& sums) {
    LORATRAIN_CHECK(sums.change > 0.0, sums.change);
    const double cosine = sums.left > 0.0 ? sums.along / std::sqrt(sums.left * sums.change) : 0.0;
    return {sums.along / sums.change, cosine, std::sqrt(sums.rounded / sums.change)};
}

Json surviving_changes_json(const ChangesOfModules& changes, const std::string& form) {
    Json linears = Json::object();
    for (const auto& [module, sums] : changes) {
        linears[module] = nullptr;
        if (sums.change == 0.0) continue;
        const SurvivingChange of = surviving_change(sums);
        linears[module] = {{"share", of.share}, {"cosine", of.cosine}, {"rounding", of.rounding}};
    }
    return {{"quantize", form}, {"linears", linears}};
}

std::vector<SurvivingOfKind> surviving_of_kinds(const ChangesOfModules& changes) {
    std::map<Linear, SurvivingOfKind> kinds;
    for (const auto& [module, sums] : changes) {
        const auto linear = linear_of_module(module);
        LORATRAIN_CHECK(linear, module);
        if (sums.change == 0.0) continue;
        const SurvivingChange of = surviving_change(sums);
        SurvivingOfKind& kind = kinds[*linear];
        const bool first = kind.modules++ == 0;
        kind.kind = module_name(*linear);
        kind.least = first ? of.share : std::min(kind.least, of.share);
        kind.most = first ? of.share : std::max(kind.most, of.share);
        kind.mean += of.share;
        kind.cosine += of.cosine;
        kind.rounding += of.rounding;
    }
    std::vector<SurvivingOfKind> result;
    for (auto& [linear, kind] : kinds) {
        const auto count = static_cast<double>(kind.modules);
        kind.mean /= count;
        kind.cosine /= count;
        kind.rounding /= count;
        result.push_back(kind);
    }
    return result;
}

std::optional<SurvivingChange> surviving_of_all(const ChangesOfModules& changes) {
    ChangeSums all;
    for (const auto& [module, sums] : changes) all.add(sums);
    if (all.change == 0.0) return std::nullopt;
    return surviving_change(all);
}

std::string surviving_text(const std::vector<SurvivingOfKind>& kinds) {
    const auto line = [](const char* format, auto... values) {
        char text[96];
        std::snprintf(text, sizeof(text), format, values...);
        return std::string(text);
    };
    std::string table =
        line("  %-14s %26s %8s %9s", "", "share: least, mean, most", "cosine", "rounding");
    for (const SurvivingOfKind& kind : kinds) {
        table += line("\n  %-14s %8.3f %8.3f %8.3f %8.3f %9.2f", kind.kind.c_str(), kind.least,
                      kind.mean, kind.most, kind.cosine, kind.rounding);
    }
    return table;
}

}  // namespace loratrain
