#include "plan/plan_text.h"

#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "plan/action_text.h"

namespace loratrain {

namespace {

constexpr std::size_t line_width = 96;

template <class Enum>
struct Word {
    Enum value;
    const char* text;
};
constexpr std::array<Word<RopeType>, 3> rope_types{
    {{RopeType::standard, "standard"}, {RopeType::linear, "linear"}, {RopeType::llama3, "llama3"}}};
constexpr std::array<Word<BackendKind>, 3> backends{
    {{BackendKind::automatic, "auto"}, {BackendKind::cpu, "cpu"}, {BackendKind::cuda, "cuda"}}};
constexpr std::array<Word<Precision>, 3> precisions{
    {{Precision::automatic, "auto"}, {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}}};
constexpr std::array<Word<Recompute>, 3> recomputes{
    {{Recompute::automatic, "auto"}, {Recompute::none, "none"}, {Recompute::layer, "layer"}}};

// ---- writing

std::string quoted(std::string_view text) {
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (byte < 0x20 || byte == 0x7f) {
            result += "\\x";
            result += digits[byte >> 4U];
            result += digits[byte & 15U];
        } else {
            result += c;
        }
    }
    return result + '"';
}

template <class Enum, std::size_t size>
std::string word(const std::array<Word<Enum>, size>& words, Enum value) {
    for (const auto& entry : words) {
        if (entry.value == value) return entry.text;
    }
    throw Error("plan text: a value without a name");
}

std::string yes_no(bool value) {
    return value ? "true" : "false";
}

std::string numbers(const std::vector<std::int32_t>& values) {
    std::string text;
    for (const std::int32_t value : values) text += cat(text.empty() ? "" : ", ", value);
    return cat("[", text, "]");
}

std::vector<std::int32_t> numbers_of(const std::vector<AdapterId>& adapters) {
    std::vector<std::int32_t> values;
    for (const AdapterId adapter : adapters) values.push_back(number(adapter));
    return values;
}

std::string model_text(const ModelSpec& m) {
    return cat("model: {family: ", quoted(m.family), ", vocab_size: ", m.vocab_size,
               ", hidden_size: ", m.hidden_size, ",\n  intermediate_size: ", m.intermediate_size,
               ", layers: ", m.layers, ", heads: ", m.heads, ", kv_heads: ", m.kv_heads,
               ", head_dim: ", m.head_dim, ",\n  rms_norm_eps: ", format_exact(m.rms_norm_eps),
               ", qkv_bias: ", yes_no(m.qkv_bias), ", o_bias: ", yes_no(m.o_bias),
               ", mlp_bias: ", yes_no(m.mlp_bias), ", qk_norm: ", yes_no(m.qk_norm),
               ",\n  tie_word_embeddings: ", yes_no(m.tie_word_embeddings),
               "}\nrope: {type: ", word(rope_types, m.rope.type),
               ", theta: ", format_exact(m.rope.theta), ", factor: ", format_exact(m.rope.factor),
               ", low_freq_factor: ", format_exact(m.rope.low_freq_factor),
               ",\n  high_freq_factor: ", format_exact(m.rope.high_freq_factor),
               ", original_max_position: ", m.rope.original_max_position, "}\n");
}

std::string line_text(const CostLine& line) {
    return cat("[", format_exact(line.fixed), ", ", format_exact(line.per_token), ", ",
               format_exact(line.per_square), "]");
}

std::string pair_text(double first, double second) {
    return cat("[", format_exact(first), ", ", format_exact(second), "]");
}

std::string costs_text(const CostModel& c) {
    return cat(
        "costs:  # seconds: fixed, per row, per square; step per parameter, message per byte",
        "\n  {layer_forward: ", line_text(c.layer_forward),
        ",\n  layer_backward: ", line_text(c.layer_backward), ",\n  head: ", line_text(c.head),
        ",\n  step: ", pair_text(c.step_fixed, c.step_per_parameter),
        ", message: ", pair_text(c.message_fixed, c.message_per_byte),
        ",\n  full_speed_ranks: ", format_exact(c.full_speed_ranks),
        ", ranks_per_host: ", c.ranks_per_host, ",\n  source: ", quoted(c.source), "}\n");
}

std::string microbatch_text(const Microbatch& microbatch) {
    std::string text;
    for (const Segment& segment : microbatch.segments) {
        text += cat(text.empty() ? "" : " ", "a", number(segment.adapter), "@", segment.step);
        for (const SampleRef& sample : segment.samples) {
            text += cat(" ", sample.index, ":", sample.tokens, ":", sample.targets);
        }
    }
    return text;
}

std::string trial_text(const LayoutTrial& trial) {
    return cat("  - [", trial.microbatch_tokens, ", ", trial.adapters, ", ",
               format_exact(trial.tokens_per_second), "]\n");
}

std::string batch_text(const BatchPlan& b) {
    return cat("[", number(b.adapter), ", ", b.step, ", ", b.round, ", ", b.epoch, ", ", b.samples,
               ", ", b.tokens, ", ", b.targets, ", ", number(b.first_microbatch), ", ",
               number(b.last_microbatch), ", ", yes_no(b.last_of_adapter), "]");
}

/// One stage's list as a block of wrapped lines.
std::string actions_text(const std::vector<Action>& actions) {
    if (actions.empty()) return "  - \"\"\n";
    std::string text = "  - |\n";
    std::string line;
    for (const Action& action : actions) {
        const std::string word_text = action_text(action);
        if (!line.empty() && line.size() + 1 + word_text.size() > line_width) {
            text += "   " + line + "\n";
            line.clear();
        }
        line += " " + word_text;
    }
    return text + "   " + line + "\n";
}

// ---- reading

[[noreturn]] void fail(std::string_view what) {
    throw Error(cat("plan text: ", what));
}

template <class Number>
Number parse_number(std::string_view text) {
    Number value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) {
        fail(cat("'", text, "' is no number"));
    }
    return value;
}

bool parse_bool(std::string_view text) {
    if (text != "true" && text != "false") fail(cat("'", text, "' is neither true nor false"));
    return text == "true";
}

template <class Enum, std::size_t size>
Enum parse_word(const std::array<Word<Enum>, size>& words, std::string_view text) {
    for (const auto& entry : words) {
        if (text == entry.text) return entry.value;
    }
    fail(cat("'", text, "' is not known"));
}

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

/// A map whose keys must be there.
class Map {
  public:
    explicit Map(const YAML::Node& node) : node_(node) {
        if (!node.IsMap()) fail("expected a map");
    }
    YAML::Node at(const char* key) const {
        const YAML::Node found = node_[key];
        if (!found) fail(cat("key ", key, " is missing"));
        return found;
    }
    std::string text(const char* key) const { return at(key).as<std::string>(); }
    void read(const char* key, std::string& value) const { value = text(key); }
    void read(const char* key, bool& value) const { value = parse_bool(text(key)); }
    template <class Number>
    void read(const char* key, Number& value) const {
        value = parse_number<Number>(text(key));
    }

  private:
    const YAML::Node& node_;
};

YAML::Node load(const std::string& text) {
    try {
        return YAML::Load(text);
    } catch (const YAML::Exception& error) {
        fail(error.what());
    }
}

ModelSpec read_model(const YAML::Node& root) {
    const YAML::Node model_node = Map(root).at("model");
    const YAML::Node rope_node = Map(root).at("rope");
    const Map model(model_node);
    const Map rope(rope_node);
    ModelSpec m;
    model.read("family", m.family);
    model.read("vocab_size", m.vocab_size);
    model.read("hidden_size", m.hidden_size);
    model.read("intermediate_size", m.intermediate_size);
    model.read("layers", m.layers);
    model.read("heads", m.heads);
    model.read("kv_heads", m.kv_heads);
    model.read("head_dim", m.head_dim);
    model.read("rms_norm_eps", m.rms_norm_eps);
    model.read("qkv_bias", m.qkv_bias);
    model.read("o_bias", m.o_bias);
    model.read("mlp_bias", m.mlp_bias);
    model.read("qk_norm", m.qk_norm);
    model.read("tie_word_embeddings", m.tie_word_embeddings);
    m.rope.type = parse_word(rope_types, rope.text("type"));
    rope.read("theta", m.rope.theta);
    rope.read("factor", m.rope.factor);
    rope.read("low_freq_factor", m.rope.low_freq_factor);
    rope.read("high_freq_factor", m.rope.high_freq_factor);
    rope.read("original_max_position", m.rope.original_max_position);
    return m;
}

StagePlan read_stage(const Map& map) {
    StagePlan stage;
    map.read("rank", stage.rank);
    map.read("first_layer", stage.first_layer);
    map.read("layer_count", stage.layer_count);
    map.read("has_embedding", stage.has_embedding);
    map.read("has_head", stage.has_head);
    return stage;
}

AdapterPlan read_adapter(const Map& map) {
    AdapterPlan adapter;
    map.read("name", adapter.name);
    map.read("samples", adapter.samples);
    map.read("steps_per_epoch", adapter.steps_per_epoch);
    map.read("total_steps", adapter.total_steps);
    return adapter;
}

MemoryPlan read_memory(const Map& map) {
    MemoryPlan memory;
    map.read("weights", memory.weights);
    map.read("adapters", memory.adapters);
    map.read("activations", memory.activations);
    map.read("workspace", memory.workspace);
    map.read("engine", memory.engine);
    return memory;
}

SampleBounds read_samples(const Map& map) {
    SampleBounds samples;
    map.read("longest", samples.longest);
    map.read("shortest", samples.shortest);
    map.read("per_round", samples.per_round);
    return samples;
}

FittingTokens read_fitting(const Map& map) {
    FittingTokens fitting;
    map.read("none", fitting.none);
    map.read("layer", fitting.layer);
    return fitting;
}

std::vector<double> read_doubles(const YAML::Node& node, std::size_t count) {
    std::vector<double> values;
    for (const auto& value : node) values.push_back(parse_number<double>(value.as<std::string>()));
    if (values.size() != count) fail(cat("expected ", count, " numbers, got ", values.size()));
    return values;
}

CostLine read_line(const YAML::Node& node) {
    const std::vector<double> values = read_doubles(node, 3);
    return {values[0], values[1], values[2]};
}

CostModel read_costs(const Map& map) {
    CostModel costs;
    costs.layer_forward = read_line(map.at("layer_forward"));
    costs.layer_backward = read_line(map.at("layer_backward"));
    costs.head = read_line(map.at("head"));
    const std::vector<double> step = read_doubles(map.at("step"), 2);
    costs.step_fixed = step[0];
    costs.step_per_parameter = step[1];
    const std::vector<double> message = read_doubles(map.at("message"), 2);
    costs.message_fixed = message[0];
    costs.message_per_byte = message[1];
    map.read("full_speed_ranks", costs.full_speed_ranks);
    map.read("ranks_per_host", costs.ranks_per_host);
    map.read("source", costs.source);
    return costs;
}

std::vector<std::string> fields_of(const YAML::Node& node) {
    std::vector<std::string> fields;
    for (const auto& field : node) fields.push_back(field.as<std::string>());
    return fields;
}

LayoutTrial read_trial(const YAML::Node& node) {
    const std::vector<std::string> fields = fields_of(node);
    if (fields.size() != 3) fail("a trial needs 3 numbers");
    return {parse_number<std::int64_t>(fields[0]), parse_number<std::int32_t>(fields[1]),
            parse_number<double>(fields[2])};
}

Plan read_plan(const YAML::Node& root) {
    const Map map(root);
    Plan plan;
    plan.model = read_model(root);
    plan.backend = parse_word(backends, map.text("backend"));
    plan.precision = parse_word(precisions, map.text("precision"));
    map.read("microbatch_tokens", plan.microbatch_tokens);
    plan.recompute = parse_word(recomputes, map.text("recompute"));
    map.read("max_in_flight", plan.max_in_flight);
    map.read("pad_columns", plan.pad_columns);
    map.read("saved_columns", plan.saved_columns);
    const YAML::Node samples = map.at("sample_bounds");
    plan.samples = read_samples(Map(samples));
    map.read("bytes_per_rank", plan.bytes_per_rank);
    const YAML::Node fitting = map.at("fitting_tokens");
    plan.fitting = read_fitting(Map(fitting));
    const YAML::Node costs = map.at("costs");
    plan.costs = read_costs(Map(costs));
    for (const auto& node : map.at("stages")) plan.replica.stages.push_back(read_stage(Map(node)));
    for (const auto& node : map.at("adapters")) plan.adapters.push_back(read_adapter(Map(node)));
    map.read("adapter_capacity", plan.adapter_capacity);
    for (const auto& node : map.at("first_admitted")) {
        plan.first_admitted.push_back(
            AdapterId{parse_number<std::int32_t>(node.as<std::string>())});
    }
    for (const auto& node : map.at("trials")) plan.trials.push_back(read_trial(node));
    for (const auto& node : map.at("memory")) plan.memory.push_back(read_memory(Map(node)));
    return plan;
}

BatchPlan read_batch(const YAML::Node& node) {
    const std::vector<std::string> fields = fields_of(node);
    if (fields.size() != 10) fail("a batch has 10 fields");
    BatchPlan batch;
    batch.adapter = AdapterId{parse_number<std::int32_t>(fields[0])};
    batch.step = parse_number<std::int32_t>(fields[1]);
    batch.round = parse_number<std::int32_t>(fields[2]);
    batch.epoch = parse_number<std::int32_t>(fields[3]);
    batch.samples = parse_number<std::int32_t>(fields[4]);
    batch.tokens = parse_number<std::int64_t>(fields[5]);
    batch.targets = parse_number<std::int64_t>(fields[6]);
    batch.first_microbatch = MicrobatchId{parse_number<std::int32_t>(fields[7])};
    batch.last_microbatch = MicrobatchId{parse_number<std::int32_t>(fields[8])};
    batch.last_of_adapter = parse_bool(fields[9]);
    return batch;
}

SampleRef read_sample(std::string_view text) {
    const std::size_t last = text.rfind(':');
    if (last == std::string_view::npos) fail(cat("'", text, "' is no sample"));
    const auto [sample, tokens] = parse_pair(text.substr(0, last), ':');
    return {sample, tokens, parse_number<std::int32_t>(text.substr(last + 1))};
}

Microbatch read_microbatch(const std::string& text) {
    Microbatch microbatch;
    for (const std::string_view word_text : words_of(text)) {
        if (word_text.starts_with('a')) {
            const auto [adapter, step] = parse_pair(word_text.substr(1), '@');
            microbatch.segments.push_back({AdapterId{adapter}, step, {}});
        } else {
            if (microbatch.segments.empty()) fail("a sample before its adapter");
            microbatch.segments.back().samples.push_back(read_sample(word_text));
        }
    }
    return microbatch;
}

std::vector<Action> read_actions(const std::string& text) {
    std::vector<Action> actions;
    for (const std::string_view word_text : words_of(text)) {
        actions.push_back(action_from_text(word_text));
    }
    return actions;
}

Window read_window(const YAML::Node& root) {
    const Map map(root);
    Window window;
    map.read("first_round", window.first_round);
    map.read("rounds", window.rounds);
    map.read("evaluation", window.evaluation);
    map.read("begins", window.begins);
    map.read("drains", window.drains);
    map.read("first_batch", window.first_batch);
    map.read("first_microbatch", window.first_microbatch);
    for (const auto& node : map.at("batches")) window.batches.push_back(read_batch(node));
    for (const auto& node : map.at("microbatches")) {
        window.microbatches.push_back(read_microbatch(node.as<std::string>()));
    }
    for (const auto& node : map.at("peak_in_flight")) {
        window.peak_in_flight.push_back(parse_number<std::int32_t>(node.as<std::string>()));
    }
    for (const auto& node : map.at("actions")) {
        window.actions.push_back(read_actions(node.as<std::string>()));
    }
    return window;
}

}  // namespace

std::string to_text(const Plan& plan) {
    std::string text = model_text(plan.model);
    text += cat(
        "backend: ", word(backends, plan.backend),
        "\nprecision: ", word(precisions, plan.precision),
        "\nmicrobatch_tokens: ", plan.microbatch_tokens,
        "\nrecompute: ", word(recomputes, plan.recompute), "\nmax_in_flight: ", plan.max_in_flight,
        "\npad_columns: ", plan.pad_columns, "\nsaved_columns: ", plan.saved_columns,
        "\nsample_bounds: {longest: ", plan.samples.longest, ", shortest: ", plan.samples.shortest,
        ", per_round: ", plan.samples.per_round, "}\nbytes_per_rank: ", plan.bytes_per_rank,
        "\nfitting_tokens: {none: ", plan.fitting.none, ", layer: ", plan.fitting.layer, "}\n");
    text += costs_text(plan.costs) + "stages:\n";
    for (const StagePlan& stage : plan.replica.stages) {
        text += cat("  - {rank: ", stage.rank, ", first_layer: ", stage.first_layer,
                    ", layer_count: ", stage.layer_count,
                    ", has_embedding: ", yes_no(stage.has_embedding),
                    ", has_head: ", yes_no(stage.has_head), "}\n");
    }
    text += "adapters:\n";
    for (const AdapterPlan& adapter : plan.adapters) {
        text += cat("  - {name: ", quoted(adapter.name), ", samples: ", adapter.samples,
                    ", steps_per_epoch: ", adapter.steps_per_epoch,
                    ", total_steps: ", adapter.total_steps, "}\n");
    }
    text += cat("adapter_capacity: ", plan.adapter_capacity,
                "\nfirst_admitted: ", numbers(numbers_of(plan.first_admitted)), "\n");
    text += "trials:  # microbatch_tokens, adapters at once, tokens/s; the chosen one first\n";
    for (const LayoutTrial& trial : plan.trials) text += trial_text(trial);
    text += "memory:  # bytes of each rank\n";
    for (const MemoryPlan& memory : plan.memory) {
        text += cat("  - {weights: ", memory.weights, ", adapters: ", memory.adapters,
                    ", activations: ", memory.activations, ", workspace: ", memory.workspace,
                    ", engine: ", memory.engine, "}\n");
    }
    return text;
}

Plan plan_from_text(const std::string& text) {
    try {
        return read_plan(load(text));
    } catch (const YAML::Exception& error) {
        fail(error.what());
    }
}

std::string to_text(const Window& window) {
    std::string text =
        cat("first_round: ", window.first_round, "\nrounds: ", window.rounds,
            "\nevaluation: ", yes_no(window.evaluation), "\nbegins: ", yes_no(window.begins),
            "\ndrains: ", yes_no(window.drains), "\nfirst_batch: ", window.first_batch,
            "\nfirst_microbatch: ", window.first_microbatch,
            "\nbatches:  # adapter, step, round, epoch, samples, tokens, targets, first and"
            " last microbatch, last of adapter\n");
    for (const BatchPlan& batch : window.batches) text += "  - " + batch_text(batch) + "\n";
    text += "microbatches:  # a<adapter>@<step> <sample>:<tokens>:<targets> ...\n";
    for (const Microbatch& microbatch : window.microbatches) {
        text += "  - \"" + microbatch_text(microbatch) + "\"\n";
    }
    text += cat("peak_in_flight: ", numbers(window.peak_in_flight), "\nactions:  # per stage\n");
    for (const std::vector<Action>& stage : window.actions) text += actions_text(stage);
    return text;
}

Window window_from_text(const std::string& text) {
    try {
        return read_window(load(text));
    } catch (const YAML::Exception& error) {
        fail(error.what());
    }
}

}  // namespace loratrain
