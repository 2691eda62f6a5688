#include "config/yaml_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/system.h"
#include "config/foreign_keys.h"
#include "config/job_keys.h"

namespace loratrain {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// Where a key belongs that stands in `section`; "" where none is called so elsewhere.
std::string misplaced_hint(const std::string& key, const std::string& section) {
    std::vector<std::string> places;
    for (const std::string& other : sections_with(key)) {
        if (other != section) places.push_back(key_place(other, key));
    }
    return places.empty() ? "" : "it belongs elsewhere: " + join(places, ", ");
}

constexpr std::int64_t smallest_int = std::numeric_limits<int>::min();
constexpr std::int64_t largest_int = std::numeric_limits<int>::max();

std::int64_t least_of(const Range& range) {
    return std::isfinite(range.low) ? static_cast<std::int64_t>(range.low) : smallest_int;
}

std::int64_t most_of(const Range& range) {
    return std::isfinite(range.high) ? static_cast<std::int64_t>(range.high) : largest_int;
}

std::string whole_number_words(const Range& range) {
    if (!std::isfinite(range.low)) return "a whole number";
    return cat("a whole number, at least ", least_of(range));
}

std::string quote(const std::string& text) {
    return "'" + text + "'";
}

}  // namespace

bool Range::contain(double value) const {
    const bool low_ok = low_excluded ? value > low : value >= low;
    return low_ok && (high_excluded ? value < high : value <= high);
}

std::string Range::words() const {
    std::string text = (low_excluded ? "greater than " : "at least ") + format_exact(low);
    if (std::isfinite(high)) {
        text += (high_excluded ? " and less than " : " and at most ") + format_exact(high);
    }
    return text;
}

std::optional<double> number_in(const std::string& text) {
    double value = 0.0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
    return value;
}

std::string folder_of(const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path).parent_path());
}

void ReadContext::set_datasets(const std::vector<DatasetJob>& all) {
    datasets.clear();
    ids.clear();
    for (const DatasetJob& dataset : all) {
        ids.emplace(dataset.name, static_cast<DatasetId>(datasets.size()));
        datasets.push_back(dataset.name);
    }
}

SectionReader::SectionReader(const YamlNode* node, const Place& parent, std::string path,
                             const ReadContext& context, const char* heading)
    : node_(node),
      place_(node != nullptr ? node->place : parent),
      path_(std::move(path)),
      heading_(heading != nullptr ? heading : path_),
      context_(context) {
    if (node_ == nullptr || node_->kind == YamlNode::Kind::null ||
        node_->kind == YamlNode::Kind::map) {
        return;
    }
    usable_ = false;
    context_.log.add(place_, (path_.empty() ? "the job file" : path_) + " must be a mapping",
                     path_ == "datasets"
                         ? "name each dataset, as in datasets: {math: {path: math.jsonl}}"
                         : "write keys and values, as in {key: value}");
}

std::string SectionReader::full_name(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
}

void SectionReader::problem(const Place& place, const std::string& key, const std::string& what,
                            const std::string& hint) {
    context_.log.add(place, full_name(key) + ": " + what, hint);
}

const YamlNode* SectionReader::find(const std::string& key) {
    if (!contains(known_, key)) known_.push_back(key);
    return node_ == nullptr ? nullptr : node_->find(key);
}

const Place& SectionReader::place_of(const std::string& key) {
    const YamlNode* node = find(key);
    return node == nullptr ? place_ : node->place;
}

SectionReader SectionReader::section(const std::string& key, const char* heading) {
    return {find(key), place_, full_name(key), context_, heading};
}

const YamlNode* SectionReader::scalar(const std::string& key, const std::string& expected) {
    const YamlNode* node = find(key);
    if (node == nullptr || node->kind == YamlNode::Kind::scalar) return node;
    if (node->kind == YamlNode::Kind::null) {
        problem(node->place, key, "has no value", "give " + expected);
    } else {
        const bool list = node->kind == YamlNode::Kind::list;
        problem(node->place, key, list ? "is a list" : "is a mapping", "give " + expected);
    }
    return nullptr;
}

void SectionReader::read(const std::string& key, std::string& value, const Range& /*range*/) {
    if (const YamlNode* node = scalar(key, "a text")) value = node->text;
}

void SectionReader::read(const std::string& key, bool& value, const Range& /*range*/) {
    const YamlNode* node = scalar(key, "true or false");
    if (node == nullptr) return;
    const std::string& text = node->text;
    const bool is_true = text == "true" || text == "True" || text == "TRUE";
    const bool is_false = text == "false" || text == "False" || text == "FALSE";
    if (node->quoted || !(is_true || is_false)) {
        problem(node->place, key, quote(text) + " is not true or false",
                "write true or false, without quotes");
        return;
    }
    value = is_true;
}

void SectionReader::read(const std::string& key, double& value, const Range& range) {
    const std::string expected = "a number, " + range.words();
    const YamlNode* node = scalar(key, expected);
    if (node == nullptr) return;
    const char* end = node->text.data() + node->text.size();
    double number = 0.0;
    const auto result = std::from_chars(node->text.data(), end, number);
    if (result.ec == std::errc::invalid_argument || result.ptr != end) {
        problem(node->place, key, quote(node->text) + " is not a number", "give " + expected);
    } else if (result.ec != std::errc{} || !std::isfinite(number) || !range.contain(number)) {
        problem(node->place, key, node->text + " is out of range", "give " + expected);
    } else {
        value = number;
    }
}

template <class Int>
std::optional<Int> SectionReader::whole_number(const std::string& key, Int least, Int most,
                                               const std::string& expected) {
    const YamlNode* node = scalar(key, expected);
    if (node == nullptr) return std::nullopt;
    const char* begin = node->text.data();
    const char* end = begin + node->text.size();
    const bool negative = std::is_unsigned_v<Int> && node->text.starts_with('-');
    Int number{};
    const auto result = std::from_chars(begin + (negative ? 1 : 0), end, number);
    if (result.ec == std::errc::invalid_argument || result.ptr != end) {
        problem(node->place, key, quote(node->text) + " is not a whole number", "give " + expected);
    } else if (result.ec != std::errc{} || number > most) {
        problem(node->place, key, node->text + " is out of range",
                cat("give ", expected, ", up to ", most));
    } else if (negative || number < least) {
        problem(node->place, key, node->text + " is out of range", "give " + expected);
    } else {
        return number;
    }
    return std::nullopt;
}

std::optional<std::int64_t> SectionReader::whole_number(const std::string& key, const Range& range,
                                                        const std::string& or_else) {
    return whole_number(key, least_of(range), most_of(range), or_else + whole_number_words(range));
}

void SectionReader::read(const std::string& key, int& value, const Range& range) {
    if (const auto number = whole_number(key, range, "")) value = static_cast<int>(*number);
}

void SectionReader::read(const std::string& key, std::int64_t& value, const Range& range) {
    value = whole_number(key, range, "").value_or(value);
}

void SectionReader::read(const std::string& key, std::uint64_t& value, const Range& /*range*/) {
    const std::uint64_t least = 0;
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    value = whole_number(key, least, most, whole_number_words(at_least(0))).value_or(value);
}

void SectionReader::read(const std::string& key, std::optional<double>& value, const Range& range) {
    if (find(key) == nullptr) return;
    double number = range.low;
    read(key, number, range);
    value = number;
}

void SectionReader::read(const std::string& key, std::optional<std::int64_t>& value,
                         const Range& range) {
    const YamlNode* node = find(key);
    if (node != nullptr && node->text == auto_word) {
        value.reset();
    } else if (const auto number = whole_number(key, range, "auto, or ")) {
        value = number;
    }
}

void SectionReader::read(const std::string& key, std::optional<int>& value, const Range& range) {
    std::optional<std::int64_t> number = value;
    read(key, number, range);
    value = number;
}

void SectionReader::read(const std::string& key, EvalSplit& value, const Range& /*range*/) {
    const std::string expected =
        "a fraction, greater than 0 and less than 1, or a number of samples, at least 1";
    const YamlNode* node = scalar(key, expected);
    if (node == nullptr) return;
    const char* begin = node->text.data();
    const char* end = begin + node->text.size();
    EvalSplit split;
    const bool whole = std::from_chars(begin, end, split.samples).ptr == end;
    if (whole && split.samples >= 1) {
        value = split;
        return;
    }
    split.samples = 0;
    const auto result = std::from_chars(begin, end, split.fraction);
    if (result.ec == std::errc::invalid_argument || result.ptr != end) {
        problem(node->place, key, quote(node->text) + " is not a number", "give " + expected);
    } else if (!(split.fraction > 0.0 && split.fraction < 1.0)) {
        problem(node->place, key, node->text + " is out of range", "give " + expected);
    } else {
        value = split;
    }
}

void SectionReader::read_path(const std::string& key, std::string& value) {
    const YamlNode* node = find(key);
    if (node != nullptr && node->kind == YamlNode::Kind::list) {
        problem(node->place, key, "is a list", "give one path");
        return;
    }
    node = scalar(key, "a path");
    if (node == nullptr) return;
    if (node->text.empty()) {
        value.clear();
        return;
    }
    std::filesystem::path base(context_.folder);
    std::string path = node->text;
    if (path == "~" || path.starts_with("~/")) {
        base = environment("HOME");
        path.erase(0, 2);
    }
    if (path.starts_with('~') || base.empty()) {
        problem(node->place, key, quote(node->text) + " names a home folder that is not known here",
                "give the whole path; only ~/ is understood, where HOME is set");
        return;
    }
    value = (base / path).lexically_normal().string();
    if (context_.paths == nullptr) return;
    const Place& place = node->place;
    context_.paths->emplace(
        value, place.on_command_line ? place.text : cat(place.text, ": ", full_name(key)));
}

std::optional<std::size_t> SectionReader::read_choice(const std::string& key,
                                                      const std::vector<std::string>& words) {
    const std::string one_of = "one of: " + join(words, ", ");
    const YamlNode* node = scalar(key, one_of);
    if (node == nullptr) return std::nullopt;
    const auto found = std::find(words.begin(), words.end(), node->text);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    problem(node->place, key, quote(node->text) + " is not known here", "give " + one_of);
    return std::nullopt;
}

void SectionReader::require(const std::string& key, const std::string& hint) {
    if (!usable_) return;
    const YamlNode* node = find(key);
    if (node == nullptr) {
        problem(place_, key, "is missing", hint);
    } else if (node->kind == YamlNode::Kind::scalar && node->text.empty()) {
        problem(node->place, key, "is empty", hint);
    }
}

void SectionReader::finish() {
    if (node_ == nullptr || node_->kind != YamlNode::Kind::map) return;
    for (const YamlNode& child : node_->children) {
        if (!contains(known_, child.key)) judge_unknown(child);
    }
}

void SectionReader::judge_unknown(const YamlNode& child) {
    const ForeignKey* foreign = foreign_key(child.key, heading_);
    if (foreign != nullptr && is_harmless(*foreign, child)) return;
    std::string hint =
        foreign == nullptr ? misplaced_hint(child.key, heading_) : answer_to(*foreign, heading_);
    if (child.key == "<<")
        hint = "merge keys are not supported; put shared adapter keys into defaults";
    if (hint.empty()) hint = context_.log.hint_among(child.key, known_);
    context_.log.add(child.key_place, "unknown key " + quote(full_name(child.key)), hint);
}

}  // namespace loratrain
