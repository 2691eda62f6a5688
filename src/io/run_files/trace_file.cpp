#include "io/run_files/trace_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

constexpr double micro = 1e6;
constexpr double nano = 1e9;
constexpr std::string_view separator = ", ";

double microseconds(double seconds) {
    return std::round(seconds * nano) / (nano / micro);
}

std::string dump(const OrderedJson& json) {
    return dump_json(json);
}

OrderedJson args_json(const std::vector<std::pair<std::string, std::string>>& args) {
    OrderedJson json = OrderedJson::object();
    for (const auto& [key, value] : args) json[key] = value;
    return json;
}

OrderedJson span_json(const TraceSpan& span) {
    const double start = microseconds(span.start_s);
    const double duration = std::max(0.0, microseconds(span.end_s - span.start_s));
    return {{"name", span.name},  {"cat", span.category},
            {"ph", "X"},          {"ts", start},
            {"dur", duration},    {"pid", span.rank},
            {"tid", span.thread}, {"args", args_json(span.args)}};
}

OrderedJson name_json(const char* what, std::int32_t rank, std::int32_t thread,
                      const std::string& name) {
    return {{"name", what},
            {"ph", "M"},
            {"pid", rank},
            {"tid", thread},
            {"args", OrderedJson{{"name", name}}}};
}

std::string thread_name(std::int32_t thread) {
    if (thread == 0) return "computation";
    return thread == 1 ? "messages" : "thread " + std::to_string(thread);
}

std::vector<std::string> name_lines(const std::vector<TraceSpan>& spans) {
    std::set<std::pair<std::int32_t, std::int32_t>> threads;
    for (const TraceSpan& span : spans) threads.insert({span.rank, span.thread});
    std::vector<std::string> lines;
    std::int32_t named = -1;
    for (const auto& [rank, thread] : threads) {
        if (rank != named) {
            lines.push_back(
                dump(name_json("process_name", rank, 0, "rank " + std::to_string(rank))));
            named = rank;
        }
        lines.push_back(dump(name_json("thread_name", rank, thread, thread_name(thread))));
    }
    return lines;
}

TraceSpan span_of(const OrderedJson& event) {
    TraceSpan span;
    span.rank = event.at("pid").get<std::int32_t>();
    span.thread = event.at("tid").get<std::int32_t>();
    span.name = event.at("name").get<std::string>();
    span.category = event.at("cat").get<std::string>();
    span.start_s = event.at("ts").get<double>() / micro;
    span.end_s = span.start_s + event.at("dur").get<double>() / micro;
    for (const auto& [key, value] : event.at("args").items()) {
        span.args.emplace_back(key, value.get<std::string>());
    }
    return span;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> share_args(const std::vector<TraceShare>& shares) {
    std::int64_t tokens = 0;
    std::vector<std::string> words;
    for (const TraceShare& share : shares) {
        tokens += share.tokens;
        words.push_back(cat(share.adapter, " ", share.tokens));
    }
    return {{"tokens", std::to_string(tokens)}, {"adapters", join(words, separator)}};
}

std::vector<TraceShare> shares_of(const TraceSpan& span) {
    std::vector<TraceShare> shares;
    const auto found = std::find_if(span.args.begin(), span.args.end(),
                                    [](const auto& arg) { return arg.first == "adapters"; });
    if (found == span.args.end()) return shares;
    std::string_view rest = found->second;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, rest.find(separator));
        rest.remove_prefix(std::min(rest.size(), word.size() + separator.size()));
        const std::size_t blank = std::min(word.rfind(' '), word.size());
        TraceShare share{std::string(word.substr(0, blank)), 0};
        const std::string_view digits = word.substr(std::min(blank + 1, word.size()));
        std::from_chars(digits.data(), digits.data() + digits.size(), share.tokens);
        shares.push_back(std::move(share));
    }
    return shares;
}

std::string trace_to_json(std::vector<TraceSpan> spans,
                          const std::vector<std::pair<std::string, std::string>>& about) {
    std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
        return std::tie(a.rank, a.start_s) < std::tie(b.rank, b.start_s);
    });
    std::vector<std::string> lines = name_lines(spans);
    for (const TraceSpan& span : spans) lines.push_back(dump(span_json(span)));
    return cat("{\"displayTimeUnit\": \"ms\",\n\"otherData\": ", dump(args_json(about)),
               ",\n\"traceEvents\": [\n", join(lines, ",\n"), "\n]}\n");
}

std::vector<TraceSpan> trace_from_json(const std::string& text, const std::string& where) {
    try {
        const OrderedJson json = parse_ordered_json(text);
        std::vector<TraceSpan> spans;
        for (const OrderedJson& event : json.at("traceEvents")) {
            if (event.at("ph") == "X") spans.push_back(span_of(event));
        }
        return spans;
    } catch (const OrderedJson::exception& error) {
        throw InputError(where, cat("is not a trace of this program: ", error.what()));
    }
}

}  // namespace loratrain
