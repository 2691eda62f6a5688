#include "config/problem_log.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::size_t most_compared = 500000;
constexpr std::size_t most_listed = 20;
constexpr std::size_t short_list = 100;

/// "--set defaults.r" names the key already.
void remove_key_of_option(const Place& place, std::string& what) {
    if (!place.on_command_line) return;
    const std::string key = place.text.substr(place.text.find(' ') + 1) + ": ";
    if (what.starts_with(key)) what.erase(0, key.size());
}

}  // namespace

std::string hint_among(const std::string& word, const std::vector<std::string>& candidates) {
    const std::string near = nearest(word, candidates);
    if (!near.empty()) return "did you mean '" + near + "'?";
    return candidates.empty() ? "" : "one of: " + some_of(candidates, most_listed);
}

void ProblemLog::add(const Place& place, std::string what, std::string hint) {
    remove_key_of_option(place, what);
    if (!known_.emplace(place.text, what).second) return;
    entries_.push_back({place, {place.text, std::move(what), std::move(hint)}});
}

std::string ProblemLog::hint_among(const std::string& word,
                                   const std::vector<std::string>& candidates) {
    const bool long_list = candidates.size() > short_list;
    if (long_list && compared_ >= most_compared)
        return "one of: " + some_of(candidates, most_listed);
    if (long_list) compared_ += candidates.size();
    return loratrain::hint_among(word, candidates);
}

void ProblemLog::throw_if_any() const {
    if (entries_.empty()) return;
    std::vector<Entry> sorted = entries_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.place.on_command_line, a.place.line) <
               std::tie(b.place.on_command_line, b.place.line);
    });
    std::vector<Problem> problems;
    problems.reserve(sorted.size());
    for (Entry& entry : sorted) problems.push_back(std::move(entry.problem));
    throw InputError(std::move(problems));
}

}  // namespace loratrain
