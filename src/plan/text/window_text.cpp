#include "plan/text/window_text.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/schedule/action_text.h"
#include "plan/text/yaml_values.h"

namespace loratrain {

namespace {

using namespace plan_yaml;

constexpr std::size_t line_width = 96;
constexpr std::string_view between_windows = "---\n";

// ---- writing

/// How the columns of a microbatch are found: l lasting, m of its own in the augmented matrix, s by
/// segment.
char columns_letter(const LoraColumns& columns) {
    if (!columns.augmented) return 's';
    return columns.lasting.empty() ? 'm' : 'l';
}

std::string microbatch_text(const Microbatch& microbatch) {
    const char letter = columns_letter(microbatch.columns);
    std::string text = cat(letter, microbatch.columns.width, microbatch.evaluation ? "e" : "");
    for (std::size_t i = 0; i < microbatch.segments.size(); ++i) {
        const Segment& segment = microbatch.segments[i];
        text += cat(" a", number(segment.adapter), "@", segment.step);
        const std::int32_t first = microbatch.columns.first[i];
        if (letter == 'm' && first > 0) text += cat("+", first);
        for (const SampleRef& sample : segment.samples) {
            text += cat(" ", sample.index, ":", sample.tokens, ":", sample.targets,
                        sample.undesirable ? "-" : "");
        }
    }
    return text;
}

std::vector<std::int32_t> lasting_columns(const Window& window) {
    if (window.microbatches.empty()) return {};
    return window.microbatches.front().columns.lasting;
}

std::string batch_text(const BatchPlan& b) {
    std::string files;
    for (const double denominator : b.file_denominators) files += ", " + format_exact(denominator);
    return cat("[", number(b.adapter), ", ", b.step, ", ", b.round, ", ", b.epoch, ", ", b.samples,
               ", ", b.tokens, ", ", b.padding, ", ", b.targets, ", ", b.chosen_targets, ", ",
               format_exact(b.target_weight), ", ", format_exact(b.denominator), ", ",
               number(b.first_microbatch), ", ", number(b.last_microbatch), ", ",
               yes_no(b.last_of_adapter), ", ", yes_no(b.evaluation), files, "]");
}

/// One stage's list as a block of wrapped lines.
std::string actions_text(const std::vector<Action>& actions) {
    if (actions.empty()) return "  - \"\"\n";
    std::string text = "  - |\n";
    std::string line;
    ActionShorthand shorthand;
    for (const Action& action : actions) {
        const std::string word_text = action_text(shorthand.shorten(action));
        if (!line.empty() && line.size() + 1 + word_text.size() > line_width) {
            text += "   " + line + "\n";
            line.clear();
        }
        line += " " + word_text;
    }
    return text + "   " + line + "\n";
}

// ---- reading

/// The parts of a text between blanks and line ends.
std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    constexpr std::string_view blanks = " \n";
    for (auto at = text.find_first_not_of(blanks); at != std::string_view::npos;) {
        const auto end = std::min(text.find_first_of(blanks, at), text.size());
        words.push_back(text.substr(at, end - at));
        at = text.find_first_not_of(blanks, end);
    }
    return words;
}

/// "a<separator>b" as two integers.
std::pair<std::int32_t, std::int32_t> parse_pair(std::string_view text, char separator) {
    const auto at = text.find(separator);
    if (at == std::string_view::npos) fail(cat("'", text, "' has no '", separator, "'"));
    return {parse_number<std::int32_t>(text.substr(0, at)),
            parse_number<std::int32_t>(text.substr(at + 1))};
}

BatchPlan read_batch(const YAML::Node& node) {
    const std::vector<std::string> fields = fields_of(node);
    if (fields.size() < 15) fail("a batch has 15 fields, and one for each of several files");
    BatchPlan batch;
    batch.adapter = AdapterId{parse_number<std::int32_t>(fields[0])};
    batch.step = parse_number<std::int32_t>(fields[1]);
    batch.round = parse_number<std::int32_t>(fields[2]);
    batch.epoch = parse_number<std::int32_t>(fields[3]);
    batch.samples = parse_number<std::int32_t>(fields[4]);
    batch.tokens = parse_number<std::int64_t>(fields[5]);
    batch.padding = parse_number<std::int64_t>(fields[6]);
    batch.targets = parse_number<std::int64_t>(fields[7]);
    batch.chosen_targets = parse_number<std::int64_t>(fields[8]);
    batch.target_weight = parse_number<double>(fields[9]);
    batch.denominator = parse_number<double>(fields[10]);
    batch.first_microbatch = MicrobatchId{parse_number<std::int32_t>(fields[11])};
    batch.last_microbatch = MicrobatchId{parse_number<std::int32_t>(fields[12])};
    batch.last_of_adapter = parse_bool(fields[13]);
    batch.evaluation = parse_bool(fields[14]);
    for (std::size_t f = 15; f < fields.size(); ++f) {
        batch.file_denominators.push_back(parse_number<double>(fields[f]));
    }
    return batch;
}

SampleRef read_sample(std::string_view text) {
    const bool undesirable = text.ends_with('-');
    if (undesirable) text.remove_suffix(1);
    const std::size_t last = text.rfind(':');
    if (last == std::string_view::npos) fail(cat("'", text, "' is no sample"));
    const auto [sample, tokens] = parse_pair(text.substr(0, last), ':');
    return {sample, tokens, parse_number<std::int32_t>(text.substr(last + 1)), undesirable};
}

LoraColumns read_columns(std::string_view text, const std::vector<std::int32_t>& lasting) {
    const char letter = text.front();
    if (letter != 'l' && letter != 'm' && letter != 's') fail(cat("'", text, "' is no width"));
    LoraColumns columns;
    columns.augmented = letter != 's';
    columns.width = parse_number<std::int32_t>(text.substr(1));
    if (letter == 'l') columns.lasting = lasting;
    return columns;
}

/// "a<adapter>@<step>", with "+<first column>" where that is neither 0 nor a lasting one.
Segment read_segment(std::string_view text, LoraColumns& columns) {
    const auto plus = std::min(text.find('+'), text.size());
    const auto [adapter, step] = parse_pair(text.substr(1, plus - 1), '@');
    const auto a = static_cast<std::size_t>(adapter);
    std::int32_t first = a < columns.lasting.size() ? columns.lasting[a] : 0;
    if (plus < text.size()) first = parse_number<std::int32_t>(text.substr(plus + 1));
    columns.first.push_back(first);
    return {AdapterId{adapter}, step, {}};
}

Microbatch read_microbatch(const std::string& text, const std::vector<std::int32_t>& lasting) {
    const std::vector<std::string_view> words = words_of(text);
    if (words.empty()) fail("a microbatch without a width");
    Microbatch microbatch;
    std::string_view width = words.front();
    microbatch.evaluation = width.ends_with('e');
    if (microbatch.evaluation) width.remove_suffix(1);
    microbatch.columns = read_columns(width, lasting);
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[i].starts_with('a')) {
            microbatch.segments.push_back(read_segment(words[i], microbatch.columns));
        } else {
            if (microbatch.segments.empty()) fail("a sample before its adapter");
            microbatch.segments.back().samples.push_back(read_sample(words[i]));
        }
    }
    return microbatch;
}

std::vector<Action> read_actions(const std::string& text) {
    std::vector<Action> actions;
    ActionShorthand shorthand;
    for (const std::string_view word_text : words_of(text)) {
        actions.push_back(shorthand.expand(action_from_text(word_text)));
    }
    return actions;
}

Window read_window(const YAML::Node& root) {
    const Map map(root);
    Window window;
    map.read("first_round", window.first_round);
    map.read("rounds", window.rounds);
    map.read("begins", window.begins);
    map.read("drains", window.drains);
    map.read("first_batch", window.first_batch);
    map.read("first_microbatch", window.first_microbatch);
    for (const auto& node : map.at("batches")) window.batches.push_back(read_batch(node));
    const auto lasting = parse_numbers<std::int32_t>(map.at("lasting_columns"));
    for (const auto& node : map.at("microbatches")) {
        window.microbatches.push_back(read_microbatch(node.as<std::string>(), lasting));
    }
    window.peak_in_flight = parse_numbers<std::int32_t>(map.at("peak_in_flight"));
    for (const auto& node : map.at("actions")) {
        window.actions.push_back(read_actions(node.as<std::string>()));
    }
    return window;
}

}  // namespace

std::string to_text(const Window& window) {
    std::string text =
        cat("first_round: ", window.first_round, "\nrounds: ", window.rounds,
            "\nbegins: ", yes_no(window.begins), "\ndrains: ", yes_no(window.drains),
            "\nfirst_batch: ", window.first_batch, "\nfirst_microbatch: ", window.first_microbatch,
            "\nbatches:  # adapter, step, round, epoch, samples, tokens, padding, targets,"
            " chosen targets, target weight, denominator, first microbatch, last microbatch, last "
            "of adapter, "
            "evaluation\n");
    for (const BatchPlan& batch : window.batches) text += "  - " + batch_text(batch) + "\n";
    text += cat("lasting_columns: ", numbers(lasting_columns(window)),
                "\nmicrobatches:  # <l, m or s><width>[e = evaluation] a<adapter>@<step>+<column>"
                " <sample>:<tokens>:<targets>[- undesirable] ...\n");
    for (const Microbatch& microbatch : window.microbatches) {
        text += "  - \"" + microbatch_text(microbatch) + "\"\n";
    }
    text += cat("peak_in_flight: ", numbers(window.peak_in_flight), "\nactions:  # per stage\n");
    for (const std::vector<Action>& stage : window.actions) text += actions_text(stage);
    return text;
}

Window window_from_text(const std::string& text) {
    return plan_yaml::parse(text, read_window);
}

std::string to_text(const JointWindow& joint) {
    if (joint.replicas.size() == 1) return to_text(joint.common());
    std::string text = cat("reductions: ", numbers(joint.reductions), "\n");
    for (const Window& window : joint.replicas) text += cat(between_windows, to_text(window));
    return text;
}

JointWindow joint_window_from_text(const std::string& text) {
    JointWindow joint;
    std::size_t end = text.find(between_windows);
    if (end == std::string::npos) {
        joint.replicas.push_back(window_from_text(text));
        return joint;
    }
    joint.reductions = plan_yaml::parse(text.substr(0, end), [](const YAML::Node& root) {
        return parse_numbers<std::int32_t>(Map(root).at("reductions"));
    });
    while (end != std::string::npos) {
        const std::size_t begin = end + between_windows.size();
        end = text.find(between_windows, begin);
        joint.replicas.push_back(window_from_text(text.substr(begin, end - begin)));
    }
    return joint;
}

}  // namespace loratrain
