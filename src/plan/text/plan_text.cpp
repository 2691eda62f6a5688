#include "plan/text/plan_text.h"

#include <array>
#include <string_view>
#include <vector>

#include "config/job_words.h"
#include "plan/cost/device.h"
#include "plan/number_types.h"
#include "plan/tensor_shard.h"
#include "plan/text/yaml_values.h"

namespace loratrain {

namespace {

using namespace plan_yaml;

constexpr std::array<Word<RopeType>, 5> rope_words{{{"standard", RopeType::standard},
                                                    {"linear", RopeType::linear},
                                                    {"llama3", RopeType::llama3},
                                                    {"yarn", RopeType::yarn},
                                                    {"longrope", RopeType::longrope}}};

constexpr std::array<Word<NormPlacement>, 3> norm_words{{{"before", NormPlacement::before},
                                                         {"after", NormPlacement::after},
                                                         {"both", NormPlacement::both}}};

constexpr std::array<Word<NormNames>, 3> norm_name_words{
    {{"usual", NormNames::usual}, {"glm4", NormNames::glm4}, {"apertus", NormNames::apertus}}};

constexpr std::array<Word<Activation>, 3> activation_words{{{"silu", Activation::silu},
                                                            {"gelu_tanh", Activation::gelu_tanh},
                                                            {"xielu", Activation::xielu}}};

constexpr std::array<Word<DType>, 2> compute_words{{{"fp32", DType::f32}, {"bf16", DType::bf16}}};

// ---- writing

std::string in_quotes(std::string_view text) {
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

std::string files_text(const AdapterPlan& adapter) {
    std::vector<std::string> counts;
    for (const FileShare& file : adapter.files) {
        counts.push_back(cat(file.samples, ", ", file.taken));
    }
    std::string text = counts.empty() ? "" : cat(", files: [", join(counts, ", "), "]");
    std::vector<std::string> eval;
    for (const std::int64_t samples : adapter.eval_files) eval.push_back(std::to_string(samples));
    if (!eval.empty()) text += cat(", eval_files: [", join(eval, ", "), "]");
    return text;
}

std::vector<std::int32_t> numbers_of(const std::vector<AdapterId>& adapters) {
    std::vector<std::int32_t> values;
    values.reserve(adapters.size());
    for (const AdapterId adapter : adapters) values.push_back(number(adapter));
    return values;
}

std::string quantization_text(const ModelSpec& m) {
    if (!m.quantization) return "";
    return cat(", quantization: ", traits_of(m.quantization->format).name,
               ", source_type: ", name_of(m.quantization->source));
}

std::string longrope_text(const RopeSpec& rope) {
    std::vector<std::string> factors;
    for (const double factor : rope.short_factors) factors.push_back(format_exact(factor));
    return cat(",\n  attention_factor: ", format_exact(rope.attention_factor), ", short_factors: [",
               join(factors, ", "), "]");
}

/// What most ropes do without.
std::string unusual_rope_text(const RopeSpec& rope) {
    std::string rest;
    if (rope.query_beta != 0.0) rest += cat(", query_beta: ", format_exact(rope.query_beta));
    if (rope.rotated != 1.0) rest += cat(", rotated: ", format_exact(rope.rotated));
    if (rope.interleaved) rest += cat(", interleaved: ", yes_no(true));
    if (rope.type == RopeType::longrope) return longrope_text(rope) + rest;
    if (rope.type != RopeType::yarn) return rest;
    return cat(",\n  beta_fast: ", format_exact(rope.beta_fast),
               ", beta_slow: ", format_exact(rope.beta_slow), ", truncate: ", yes_no(rope.truncate),
               ", attention_factor: ", format_exact(rope.attention_factor), rest);
}

/// What most families do without.
std::string multipliers_text(const ModelSpec& m) {
    const ModelSpec none;
    std::string text;
    const auto add = [&](const char* key, double value, double without) {
        if (value != without) text += cat(", ", key, ": ", format_exact(value));
    };
    add("embedding_multiplier", m.embedding_multiplier, none.embedding_multiplier);
    add("attention_multiplier", m.attention_multiplier, none.attention_multiplier);
    add("residual_multiplier", m.residual_multiplier, none.residual_multiplier);
    add("logits_scaling", m.logits_scaling, none.logits_scaling);
    add("attention_soft_cap", m.attention_soft_cap, none.attention_soft_cap);
    add("logits_soft_cap", m.logits_soft_cap, none.logits_soft_cap);
    return text;
}

/// What is not as in llama.
std::string arithmetic_text(const ModelSpec& m) {
    std::string text;
    if (m.norms != NormPlacement::before) text += cat(", norms: ", word_of(norm_words, m.norms));
    if (m.activation != Activation::silu) {
        text += cat(", activation: ", word_of(activation_words, m.activation));
    }
    const auto add = [&](const char* key, bool value) {
        if (value) text += cat(", ", key, ": ", yes_no(value));
    };
    add("qk_norm_whole", m.qk_norm_whole);
    add("norm_plus_one", m.norm_plus_one);
    add("fused_qkv", m.fused_qkv);
    add("fused_gate_up", m.fused_gate_up);
    if (m.norm_names != NormNames::usual) {
        text += cat(", norm_names: ", word_of(norm_name_words, m.norm_names));
    }
    add("embeds_scaled", m.embeds_scaled);
    if (!m.wrapper.empty()) text += cat(", wrapper: ", in_quotes(m.wrapper));
    return text.empty() ? text : ",\n " + text.substr(1);
}

std::string experts_text(const ModelSpec& m) {
    if (!m.has_experts()) return "";
    return cat(",\n  experts: ", m.experts.count, ", experts_per_token: ", m.experts.per_token,
               ", expert_size: ", m.experts.size,
               ", normalised_experts: ", yes_no(m.experts.normalised));
}

/// What some layers have unlike others.
std::string unlike_layers_text(const ModelSpec& m) {
    std::vector<std::int32_t> without_rope;
    std::vector<std::int32_t> windows;
    bool has_windows = false;
    for (std::int64_t i = 0; i < m.layers; ++i) {
        windows.push_back(static_cast<std::int32_t>(m.layer(i).window));
        has_windows = has_windows || windows.back() > 0;
        if (!m.layer(i).rope) without_rope.push_back(static_cast<std::int32_t>(i));
    }
    std::string text;
    if (!without_rope.empty()) text += cat(",\n  layers_without_rope: ", numbers(without_rope));
    if (has_windows) text += cat(",\n  windows: ", numbers(windows));
    return text;
}

std::string rope_text(const RopeSpec& rope) {
    return cat("{type: ", word_of(rope_words, rope.type), ", theta: ", format_exact(rope.theta),
               ", factor: ", format_exact(rope.factor),
               ", low_freq_factor: ", format_exact(rope.low_freq_factor),
               ",\n  high_freq_factor: ", format_exact(rope.high_freq_factor),
               ", original_max_position: ", rope.original_max_position, unusual_rope_text(rope),
               "}\n");
}

std::string model_text(const ModelSpec& m) {
    return cat("model: {family: ", in_quotes(m.family), ", vocab_size: ", m.vocab_size,
               ", hidden_size: ", m.hidden_size, ",\n  intermediate_size: ", m.intermediate_size,
               ", layers: ", m.layers, ", heads: ", m.heads, ", kv_heads: ", m.kv_heads,
               ", head_dim: ", m.head_dim, ",\n  rms_norm_eps: ", format_exact(m.rms_norm_eps),
               ", qkv_bias: ", yes_no(m.qkv_bias), ", o_bias: ", yes_no(m.o_bias),
               ", mlp_bias: ", yes_no(m.mlp_bias), ", qk_norm: ", yes_no(m.qk_norm),
               ",\n  tie_word_embeddings: ", yes_no(m.tie_word_embeddings), quantization_text(m),
               multipliers_text(m), arithmetic_text(m), experts_text(m), unlike_layers_text(m),
               "}\nrope: ", rope_text(m.rope),
               m.window_rope ? "window_rope: " + rope_text(*m.window_rope) : "");
}

std::string line_text(const CostLine& line) {
    return cat("[", format_exact(line.fixed), ", ", format_exact(line.per_token), ", ",
               format_exact(line.per_square), ", ", format_exact(line.per_segment), "]");
}

std::string pair_text(double first, double second) {
    return cat("[", format_exact(first), ", ", format_exact(second), "]");
}

std::string host_text(const HostCosts& host) {
    const auto line = [](const HostLine& of) { return pair_text(of.fixed, of.per_segment); };
    const auto shapes = [](const NewShapeLine& of) {
        return cat("[", format_exact(of.each), ", ", format_exact(of.first), ", ", of.met, ", ",
                   format_exact(of.per_row), "]");
    };
    return cat(
        "{layer_forward: ", line(host.layer_forward),
        ", layer_backward: ", line(host.layer_backward), ",\n    forward: ", line(host.forward),
        ", backward: ", line(host.backward), ", head: ", format_exact(host.head),
        ",\n    new_attention: ", format_exact(host.new_attention),
        ", new_rows: ", shapes(host.new_rows), ", new_targets: ", shapes(host.new_targets), "}");
}

std::string costs_text(const CostModel& c) {
    return cat("{layer_forward: ", line_text(c.layer_forward),
               ",\n  layer_backward: ", line_text(c.layer_backward),
               ", first_layer_saving: ", format_exact(c.first_layer_saving),
               ",\n  head: ", line_text(c.head), ",\n  host: ", host_text(c.host),
               ",\n  step: ", pair_text(c.step_fixed, c.step_per_parameter),
               ", message: ", pair_text(c.message_fixed, c.message_per_byte),
               c.layer_transfer == 0.0 ? "" : ", layer_transfer: " + format_exact(c.layer_transfer),
               c.offload_per_token == 0.0
                   ? ""
                   : ", offload_per_token: " + format_exact(c.offload_per_token),
               ",\n  full_speed_ranks: ", format_exact(c.full_speed_ranks),
               ", ranks_per_host: ", c.ranks_per_host, ",\n  source: ", in_quotes(c.source), "}\n");
}

std::string other_costs_text(const std::vector<DegreeCosts>& others) {
    if (others.empty()) return "";
    std::string text = "other_costs:  # of replicas with other numbers of lanes\n";
    for (const DegreeCosts& other : others) {
        text += cat("- tensor: ", other.tensor, "\n  costs:\n  ", costs_text(other.costs));
    }
    return text;
}

std::string span_text(const AdapterSpan& span) {
    return cat("[", span.begin, ", ", span.end, "]");
}

std::string holders_text(const StagePlan& stage) {
    std::vector<std::string> ranks;
    for (const std::int32_t rank : stage.holders) ranks.push_back(std::to_string(rank));
    return ranks.empty() ? "" : cat(", holders: [", join(ranks, ", "), "]");
}

std::string replica_text(const ReplicaPlan& replica) {
    std::string text = cat(
        "  - tensor: ", replica.tensor, "\n    microbatch_tokens: ", replica.microbatch_tokens,
        "\n    recompute: ", word_of(recompute_words, replica.recompute),
        "\n    max_in_flight: ", replica.max_in_flight, "\n    pad_columns: ", replica.pad_columns,
        "\n    saved_columns: ", replica.saved_columns,
        "\n    stages:  # adapters: first, and one past the last\n");
    for (const StagePlan& stage : replica.stages) {
        text += cat(
            "      - {rank: ", stage.rank, ", first_layer: ", stage.first_layer,
            ", layer_count: ", stage.layer_count, ", has_embedding: ", yes_no(stage.has_embedding),
            ", has_head: ", yes_no(stage.has_head),
            ",\n        first_layer_adapters: ", span_text(stage.first_layer_adapters),
            ", last_layer_adapters: ", span_text(stage.last_layer_adapters),
            stage.resident_layers == all_layers ? ""
                                                : cat(", resident_layers: ", stage.resident_layers),
            stage.kept_layers == 0 ? "" : cat(", kept_layers: ", stage.kept_layers),
            stage.offloaded_layers == 0 ? "" : cat(", offloaded_layers: ", stage.offloaded_layers),
            holders_text(stage), "}\n");
    }
    return text;
}

// ---- reading

template <class Enum, std::size_t size>
Enum parse_word(const std::array<Word<Enum>, size>& words, std::string_view text) {
    for (const auto& entry : words) {
        if (text == entry.text) return entry.value;
    }
    fail(cat("'", text, "' is not known"));
}

WeightFormat read_format(const std::string& name) {
    const auto format = weight_format(name);
    if (!format) fail(cat("'", name, "' is not known here"));
    return *format;
}

std::optional<Quantization> read_quantization(const Map& model) {
    if (!model.has("quantization")) return std::nullopt;
    const std::string source = model.text("source_type");
    const auto type = source_type(source);
    if (!type) fail(cat("'", source, "' is not known here"));
    return Quantization{read_format(model.text("quantization")), *type};
}

void read_multipliers(const Map& model, ModelSpec& m) {
    const auto read = [&](const char* key, double& value) {
        if (model.has(key)) model.read(key, value);
    };
    read("embedding_multiplier", m.embedding_multiplier);
    read("attention_multiplier", m.attention_multiplier);
    read("residual_multiplier", m.residual_multiplier);
    read("logits_scaling", m.logits_scaling);
    read("attention_soft_cap", m.attention_soft_cap);
    read("logits_soft_cap", m.logits_soft_cap);
}

void read_arithmetic(const Map& model, ModelSpec& m) {
    if (model.has("norms")) m.norms = parse_word(norm_words, model.text("norms"));
    if (model.has("activation")) {
        m.activation = parse_word(activation_words, model.text("activation"));
    }
    const auto read = [&](const char* key, bool& value) {
        if (model.has(key)) model.read(key, value);
    };
    read("qk_norm_whole", m.qk_norm_whole);
    read("norm_plus_one", m.norm_plus_one);
    read("fused_qkv", m.fused_qkv);
    read("fused_gate_up", m.fused_gate_up);
    if (model.has("norm_names")) {
        m.norm_names = parse_word(norm_name_words, model.text("norm_names"));
    }
    read("embeds_scaled", m.embeds_scaled);
    if (model.has("wrapper")) model.read("wrapper", m.wrapper);
}

void read_experts_of(const Map& model, ModelSpec& m) {
    if (!model.has("experts")) return;
    model.read("experts", m.experts.count);
    model.read("experts_per_token", m.experts.per_token);
    model.read("expert_size", m.experts.size);
    model.read("normalised_experts", m.experts.normalised);
}

RopeSpec read_rope(const Map& rope) {
    RopeSpec spec;
    spec.type = parse_word(rope_words, rope.text("type"));
    rope.read("theta", spec.theta);
    rope.read("factor", spec.factor);
    rope.read("low_freq_factor", spec.low_freq_factor);
    rope.read("high_freq_factor", spec.high_freq_factor);
    rope.read("original_max_position", spec.original_max_position);
    if (rope.has("query_beta")) rope.read("query_beta", spec.query_beta);
    if (rope.has("rotated")) rope.read("rotated", spec.rotated);
    if (rope.has("interleaved")) rope.read("interleaved", spec.interleaved);
    if (rope.has("attention_factor")) rope.read("attention_factor", spec.attention_factor);
    if (rope.has("short_factors")) {
        spec.short_factors = parse_numbers<double>(rope.at("short_factors"));
    }
    if (spec.type != RopeType::yarn) return spec;
    rope.read("beta_fast", spec.beta_fast);
    rope.read("beta_slow", spec.beta_slow);
    rope.read("truncate", spec.truncate);
    return spec;
}

void read_layers(const Map& model, ModelSpec& m) {
    const auto layers = static_cast<std::size_t>(m.layers);
    std::vector<std::int64_t> without_rope;
    std::vector<std::int64_t> windows;
    if (model.has("layers_without_rope")) {
        without_rope = parse_numbers<std::int64_t>(model.at("layers_without_rope"));
    }
    if (model.has("windows")) windows = parse_numbers<std::int64_t>(model.at("windows"));
    if (!windows.empty() && windows.size() != layers) fail("windows are not one for each layer");
    if (without_rope.empty() && windows.empty()) return;
    m.layer_specs.resize(layers);
    for (const std::int64_t i : without_rope) {
        if (i < 0 || i >= m.layers) fail(cat("there is no layer ", i));
        m.layer_specs[static_cast<std::size_t>(i)].rope = false;
    }
    for (std::size_t i = 0; i < windows.size(); ++i) m.layer_specs[i].window = windows[i];
}

ModelSpec read_model(const YAML::Node& root) {
    const YAML::Node model_node = Map(root).at("model");
    const Map model(model_node);
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
    m.quantization = read_quantization(model);
    read_multipliers(model, m);
    read_layers(model, m);
    read_arithmetic(model, m);
    read_experts_of(model, m);
    m.rope = read_rope(Map(Map(root).at("rope")));
    if (Map(root).has("window_rope")) m.window_rope = read_rope(Map(Map(root).at("window_rope")));
    return m;
}

AdapterSpan read_span(const YAML::Node& node) {
    const std::vector<std::int32_t> ends = parse_numbers<std::int32_t>(node);
    if (ends.size() != 2) fail(cat("expected 2 numbers, got ", ends.size()));
    return {ends[0], ends[1]};
}

StagePlan read_stage(const Map& map) {
    StagePlan stage;
    map.read("rank", stage.rank);
    map.read("first_layer", stage.first_layer);
    map.read("layer_count", stage.layer_count);
    map.read("has_embedding", stage.has_embedding);
    map.read("has_head", stage.has_head);
    stage.first_layer_adapters = read_span(map.at("first_layer_adapters"));
    stage.last_layer_adapters = read_span(map.at("last_layer_adapters"));
    if (map.has("resident_layers")) map.read("resident_layers", stage.resident_layers);
    if (map.has("kept_layers")) map.read("kept_layers", stage.kept_layers);
    if (map.has("offloaded_layers")) map.read("offloaded_layers", stage.offloaded_layers);
    if (map.has("holders")) stage.holders = parse_numbers<std::int32_t>(map.at("holders"));
    return stage;
}

/// Samples and taken ones of each file in turn.
std::vector<FileShare> read_files(const YAML::Node& node) {
    const auto counts = parse_numbers<std::int64_t>(node);
    std::vector<FileShare> files;
    for (std::size_t i = 0; i + 1 < counts.size(); i += 2) {
        files.push_back({counts[i], counts[i + 1]});
    }
    return files;
}

AdapterPlan read_adapter(const Map& map) {
    AdapterPlan adapter;
    map.read("name", adapter.name);
    map.read("samples", adapter.samples);
    if (map.has("group_samples")) map.read("group_samples", adapter.group_samples);
    map.read("steps_per_epoch", adapter.steps_per_epoch);
    map.read("total_steps", adapter.total_steps);
    if (map.has("files")) adapter.files = read_files(map.at("files"));
    if (map.has("eval_files"))
        adapter.eval_files = parse_numbers<std::int64_t>(map.at("eval_files"));
    return adapter;
}

MemoryPlan read_memory(const Map& map) {
    MemoryPlan memory;
    map.read("weights", memory.weights);
    map.read("adapters", memory.adapters);
    map.read("activations", memory.activations);
    map.read("workspace", memory.workspace);
    map.read("engine", memory.engine);
    if (map.has("host")) map.read("host", memory.host);
    if (map.has("host_activations")) map.read("host_activations", memory.host_activations);
    return memory;
}

SampleBounds read_samples(const Map& map) {
    SampleBounds samples;
    map.read("longest", samples.longest);
    map.read("shortest", samples.shortest);
    map.read("per_round", samples.per_round);
    return samples;
}

std::vector<double> read_doubles(const YAML::Node& node, std::size_t count) {
    std::vector<double> values = parse_numbers<double>(node);
    if (values.size() != count) fail(cat("expected ", count, " numbers, got ", values.size()));
    return values;
}

CostLine read_line(const YAML::Node& node) {
    constexpr std::size_t before = 3;  // in plans of before
    const std::size_t count = parse_numbers<double>(node).size() == before ? before : before + 1;
    const std::vector<double> values = read_doubles(node, count);
    return {values[0], values[1], values[2], count > before ? values[before] : 0.0};
}

HostLine read_host_line(const YAML::Node& node) {
    const std::vector<double> values = read_doubles(node, 2);
    return {values[0], values[1]};
}

NewShapeLine read_new_shapes(const YAML::Node& node) {
    constexpr std::size_t before = 3;  // in plans of before
    const std::size_t count = parse_numbers<double>(node).size() == before ? before : before + 1;
    const std::vector<double> values = read_doubles(node, count);
    return {values[0], values[1], static_cast<std::int32_t>(values[2]),
            count > before ? values[before] : 0.0};
}

HostCosts read_host(const Map& map) {
    HostCosts host;
    host.layer_forward = read_host_line(map.at("layer_forward"));
    host.layer_backward = read_host_line(map.at("layer_backward"));
    host.forward = read_host_line(map.at("forward"));
    host.backward = read_host_line(map.at("backward"));
    map.read("head", host.head);
    map.read("new_attention", host.new_attention);
    host.new_rows = read_new_shapes(map.at("new_rows"));
    host.new_targets = read_new_shapes(map.at("new_targets"));
    return host;
}

CostModel read_costs(const Map& map) {
    CostModel costs;
    costs.layer_forward = read_line(map.at("layer_forward"));
    costs.layer_backward = read_line(map.at("layer_backward"));
    map.read("first_layer_saving", costs.first_layer_saving);
    costs.head = read_line(map.at("head"));
    if (map.has("host")) {  // plans of before have none
        const YAML::Node host = map.at("host");
        costs.host = read_host(Map(host));
    }
    const std::vector<double> step = read_doubles(map.at("step"), 2);
    costs.step_fixed = step[0];
    costs.step_per_parameter = step[1];
    const std::vector<double> message = read_doubles(map.at("message"), 2);
    costs.message_fixed = message[0];
    costs.message_per_byte = message[1];
    if (map.has("layer_transfer")) map.read("layer_transfer", costs.layer_transfer);
    if (map.has("offload_per_token")) map.read("offload_per_token", costs.offload_per_token);
    map.read("full_speed_ranks", costs.full_speed_ranks);
    map.read("ranks_per_host", costs.ranks_per_host);
    map.read("source", costs.source);
    return costs;
}

DegreeCosts read_degree(const Map& map) {
    DegreeCosts degree;
    map.read("tensor", degree.tensor);
    const YAML::Node costs = map.at("costs");
    degree.costs = read_costs(Map(costs));
    return degree;
}

ReplicaPlan read_replica(const Map& map) {
    ReplicaPlan replica;
    map.read("microbatch_tokens", replica.microbatch_tokens);
    replica.recompute = parse_word(recompute_words, map.text("recompute"));
    map.read("max_in_flight", replica.max_in_flight);
    map.read("pad_columns", replica.pad_columns);
    map.read("saved_columns", replica.saved_columns);
    for (const auto& node : map.at("stages")) replica.stages.push_back(read_stage(Map(node)));
    return replica;
}

/// Plans of versions before there were replicas have the fields of their only one at the top.
std::vector<ReplicaPlan> read_replicas(const YAML::Node& root, const ModelSpec& model) {
    if (!root["replicas"]) return {read_replica(Map(root))};
    std::vector<ReplicaPlan> replicas;
    for (const auto& node : root["replicas"]) {
        const Map map(node);
        map.read("tensor", replicas.emplace_back(read_replica(map)).tensor);
        if (!can_shard(model, replicas.back().tensor)) {
            plan_yaml::fail(
                cat("the model cannot be shared by ", replicas.back().tensor, " lanes"));
        }
    }
    return replicas;
}

/// A plan of before says `precision`, for both.
void read_number_types(const Map& map, Plan& plan) {
    NumberTypes types;
    if (map.has("precision")) {
        types = number_types(parse_word(precision_words, map.text("precision")), plan.backend);
    } else {
        types.compute = parse_word(compute_words, map.text("compute"));
        types.weights = read_format(map.text("weight_format"));
        if (map.has("fp8_linears")) map.read("fp8_linears", types.fp8_linears);
        if (map.has("fp8_one_order")) map.read("fp8_one_order", plan.fp8_one_order);
    }
    if (map.has("expert_lora")) map.read("expert_lora", plan.expert_lora);
    plan.compute = types.compute;
    plan.weights = types.weights;
    plan.fp8_linears = types.fp8_linears;
}

Plan read_plan(const YAML::Node& root) {
    const Map map(root);
    Plan plan;
    plan.model = read_model(root);
    plan.backend = parse_word(backend_words, map.text("backend"));
    read_number_types(map, plan);
    plan.device = usual_device(plan.backend);
    if (map.has("device")) map.read("device", plan.device);  // plans of before have the usual one
    const YAML::Node samples = map.at("sample_bounds");
    plan.samples = read_samples(Map(samples));
    map.read("bytes_per_rank", plan.bytes_per_rank);
    const YAML::Node costs = map.at("costs");
    plan.costs = read_costs(Map(costs));
    if (map.has("other_costs")) {
        for (const auto& node : map.at("other_costs"))
            plan.other_costs.push_back(read_degree(Map(node)));
    }
    plan.replicas = read_replicas(root, plan.model);
    plan.joint = plan.replicas.size() > 1;
    for (const auto& node : map.at("adapters")) plan.adapters.push_back(read_adapter(Map(node)));
    map.read("adapter_capacity", plan.adapter_capacity);
    for (const auto id : parse_numbers<std::int32_t>(map.at("first_admitted"))) {
        plan.first_admitted.push_back(AdapterId{id});
    }
    for (const auto& node : map.at("memory")) plan.memory.push_back(read_memory(Map(node)));
    return plan;
}

}  // namespace

std::string to_text(const Plan& plan) {
    std::string text = model_text(plan.model);
    text += cat("backend: ", word_of(backend_words, plan.backend),
                "\ncompute: ", word_of(compute_words, plan.compute),
                "\nweight_format: ", traits_of(plan.weights).name,
                plan.fp8_linears ? "\nfp8_linears: true" : "",
                plan.fp8_one_order ? "\nfp8_one_order: true" : "",
                plan.expert_lora ? "\nexpert_lora: true" : "",
                "\ndevice: ", in_quotes(packing_device(plan)),
                "\nsample_bounds: {longest: ", plan.samples.longest,
                ", shortest: ", plan.samples.shortest, ", per_round: ", plan.samples.per_round,
                "}\nbytes_per_rank: ", plan.bytes_per_rank, "\n");
    text +=
        cat("costs:  # seconds: fixed, per row, square, segment; step per parameter, message per "
            "byte\n  ",
            costs_text(plan.costs), other_costs_text(plan.other_costs), "replicas:\n");
    for (const ReplicaPlan& replica : plan.replicas) text += replica_text(replica);
    text += "adapters:\n";
    for (const AdapterPlan& adapter : plan.adapters) {
        text += cat("  - {name: ", in_quotes(adapter.name), ", samples: ", adapter.samples,
                    ", group_samples: ", adapter.group_samples,
                    ", steps_per_epoch: ", adapter.steps_per_epoch,
                    ", total_steps: ", adapter.total_steps, files_text(adapter), "}\n");
    }
    text += cat("adapter_capacity: ", plan.adapter_capacity,
                "\nfirst_admitted: ", numbers(numbers_of(plan.first_admitted)), "\n");
    text += "memory:  # bytes of each rank\n";
    for (const MemoryPlan& memory : plan.memory) {
        text +=
            cat("  - {weights: ", memory.weights, ", adapters: ", memory.adapters,
                ", activations: ", memory.activations, ", workspace: ", memory.workspace,
                ", engine: ", memory.engine, memory.host == 0 ? "" : cat(", host: ", memory.host),
                memory.host_activations == 0 ? ""
                                             : cat(", host_activations: ", memory.host_activations),
                "}\n");
    }
    return text;
}

Plan plan_from_text(const std::string& text) {
    return plan_yaml::parse(text, read_plan);
}

}  // namespace loratrain
