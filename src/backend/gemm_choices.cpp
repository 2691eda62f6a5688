#include "backend/gemm_choices.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace loratrain {

namespace {

constexpr const char* format_version = "v2/";
constexpr std::size_t most_candidates = 64;  // of a line that is read
constexpr double clearly_better = 0.97;

/// As long as so many thousandths of a wave, full or not.
double filled(std::int64_t milliwaves) {
    const double waves = static_cast<double>(milliwaves) / 1000.0;
    return waves + std::ceil(waves);
}

/// 0 where that is not known.
double expected(const GemmCandidate& candidate, std::int64_t milliwaves) {
    if (candidate.milliwaves <= 0 || milliwaves <= 0) return 0.0;
    return static_cast<double>(candidate.nanoseconds) * filled(milliwaves) /
           filled(candidate.milliwaves);
}

/// Of the candidates.
struct Usable {
    std::size_t number = 0;
    double expected = 0.0;
};

bool has(const GemmCandidates& candidates, const GemmCandidate& wanted) {
    return std::any_of(candidates.begin(), candidates.end(), [&wanted](const GemmCandidate& c) {
        return c.algorithm == wanted.algorithm;
    });
}

/// Of products that differ in rows and terms alone.
GemmKey family_of(GemmKey key) {
    key[0] = 0;
    key[2] = 0;
    return key;
}

double distance(std::int64_t a, std::int64_t b) {
    return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

}  // namespace

std::optional<std::size_t> pick_candidate(
    const GemmCandidates& candidates,
    const std::function<std::optional<std::int64_t>(const GemmCandidate&)>& waves) {
    std::vector<Usable> usable;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (const auto now = waves(candidates[i]))
            usable.push_back({i, expected(candidates[i], *now)});
    }
    if (usable.empty()) return std::nullopt;
    const bool known =
        std::all_of(usable.begin(), usable.end(), [](const Usable& u) { return u.expected > 0.0; });
    Usable best = usable.front();
    for (const Usable& other : usable) {
        if (known && other.expected < clearly_better * best.expected) best = other;
    }
    return best.number;
}

GemmCandidates worth_trying(const std::vector<const GemmCandidates*>& classes, double limit,
                            std::size_t most) {
    GemmCandidates found;
    for (const GemmCandidates* candidates : classes) {
        if (candidates->empty()) continue;
        for (const GemmCandidate& candidate : *candidates) {
            const auto best = static_cast<double>(candidates->front().nanoseconds);
            if (found.size() == most) return found;
            if (static_cast<double>(candidate.nanoseconds) > limit * best) break;
            if (!has(found, candidate)) found.push_back(candidate);
        }
    }
    return found;
}

GemmChoices::GemmChoices(std::string tag, const std::string& run_file,
                         const std::string& shared_file)
    : tag_(format_version + std::move(tag)), run_(run_file), shared_(shared_file) {}

const GemmCandidates* GemmChoices::find(const GemmKey& key) {
    if (!of_run_.contains(key)) take(run_.read(), of_run_);
    const auto known = of_run_.find(key);
    if (known != of_run_.end()) return &known->second;
    take(shared_.read(), of_all_);
    const auto shared = of_all_.find(key);
    return shared == of_all_.end() ? nullptr : &agree(key, shared->second);
}

const GemmCandidates& GemmChoices::agree(const GemmKey& key, GemmCandidates own) {
    run_.append([&](const std::vector<std::string>& added) -> std::string {
        take(added, of_run_);
        if (of_run_.contains(key)) return "";
        append_shared(key, own);
        of_run_.emplace(key, own);
        return line_of(key, own);
    });
    return of_run_.at(key);
}

/// What the file has already counts.
void GemmChoices::append_shared(const GemmKey& key, GemmCandidates& candidates) {
    shared_.append([&](const std::vector<std::string>& added) -> std::string {
        take(added, of_all_);
        const auto [known, is_new] = of_all_.emplace(key, candidates);
        if (is_new) return line_of(key, candidates);
        candidates = known->second;
        return "";
    });
}

std::vector<const GemmCandidates*> GemmChoices::relatives(const GemmKey& key) const {
    std::vector<std::pair<double, const GemmCandidates*>> found;
    for (const Table* table : {&of_run_, &of_all_}) {
        for (const auto& [other, candidates] : *table) {
            const bool again = table == &of_all_ && of_run_.contains(other);
            if (again || family_of(other) != family_of(key)) continue;
            found.emplace_back(distance(other[0], key[0]), &candidates);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<const GemmCandidates*> nearest;
    nearest.reserve(found.size());
    for (const auto& [of, candidates] : found) nearest.push_back(candidates);
    return nearest;
}

void GemmChoices::take(const std::vector<std::string>& lines, Table& into) const {
    for (const std::string& line : lines) {
        std::istringstream words(line);
        std::string tag;
        GemmKey key{};
        std::size_t count = 0;
        words >> tag;
        if (tag != tag_) continue;
        for (std::int64_t& number : key) words >> number;
        words >> count;
        if (!words || count == 0 || count > most_candidates) continue;
        GemmCandidates candidates(count);
        for (GemmCandidate& candidate : candidates) {
            words >> candidate.nanoseconds >> candidate.milliwaves;
            for (std::uint64_t& part : candidate.algorithm) words >> part;
        }
        if (words) into.emplace(key, std::move(candidates));
    }
}

std::string GemmChoices::line_of(const GemmKey& key, const GemmCandidates& candidates) const {
    std::ostringstream line;
    line << tag_;
    for (const std::int64_t number : key) line << ' ' << number;
    line << ' ' << candidates.size();
    for (const GemmCandidate& candidate : candidates) {
        line << ' ' << candidate.nanoseconds << ' ' << candidate.milliwaves;
        for (const std::uint64_t part : candidate.algorithm) line << ' ' << part;
    }
    return line.str();
}

}  // namespace loratrain
