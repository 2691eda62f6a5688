#include "plan/text/plan_text.h"

#include <array>
#include <string_view>
#include <vector>

#include "config/job_words.h"
#include "plan/cost/device.h"
#include "plan/number_types.h"
#include "plan/tensor_shard.h"
#include "plan/text/costs_text.h"
#include "plan/text/model_text.h"
#include "plan/text/yaml_values.h"

namespace loratrain {

namespace {

using namespace plan_yaml;

constexpr std::string_view format_name = "loratrain-plan-2";
constexpr std::array<Word<DType>, 2> compute_words{{{"fp32", DType::f32}, {"bf16", DType::bf16}}};

// ---- writing

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

std::string span_text(const AdapterSpan& span) {
    return cat("[", span.begin, ", ", span.end, "]");
}

std::string owners_text(const StagePlan& stage) {
    std::vector<std::string> ranks;
    for (const std::int32_t rank : stage.owners) ranks.push_back(std::to_string(rank));
    return ranks.empty() ? "" : cat(", holders: [", join(ranks, ", "), "]");
}

std::string joined_text(const ReplicaPlan& replica) {
    const std::vector<std::string> groups = joined_groups(replica);
    return groups.empty() ? "" : cat("\n    joined: [", join(groups, ", "), "]");
}

std::string replica_text(const ReplicaPlan& replica) {
    std::string text = cat(
        "  - tensor: ", replica.tensor, "\n    microbatch_tokens: ", replica.microbatch_tokens,
        "\n    recompute: ", word_of(recompute_words, replica.recompute),
        "\n    max_in_flight: ", replica.max_in_flight, "\n    pad_columns: ", replica.pad_columns,
        "\n    saved_columns: ", replica.saved_columns, joined_text(replica),
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
            owners_text(stage), "}\n");
    }
    return text;
}

// ---- reading

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
    map.read_any("resident_layers", stage.resident_layers);
    map.read_any("kept_layers", stage.kept_layers);
    map.read_any("offloaded_layers", stage.offloaded_layers);
    if (map.has("holders")) stage.owners = parse_numbers<std::int32_t>(map.at("holders"));
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
    map.read_any("group_samples", adapter.group_samples);
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
    map.read_any("host", memory.host);
    map.read_any("host_activations", memory.host_activations);
    return memory;
}

/// A plan of before has it among bounds of samples.
void read_longest_sample(const Map& map, Plan& plan) {
    if (map.has("sample_bounds")) {
        const YAML::Node bounds = map.at("sample_bounds");
        Map(bounds).read("longest", plan.longest_sample);
    } else {
        map.read("longest_sample", plan.longest_sample);
    }
}

ReplicaPlan read_replica(const Map& map) {
    ReplicaPlan replica;
    map.read("microbatch_tokens", replica.microbatch_tokens);
    replica.recompute = parse_word(recompute_words, map.text("recompute"));
    map.read("max_in_flight", replica.max_in_flight);
    map.read("pad_columns", replica.pad_columns);
    map.read("saved_columns", replica.saved_columns);
    if (map.has("joined")) {
        for (const std::string& word : fields_of(map.at("joined"))) {
            replica.joined[static_cast<std::size_t>(parse_word(linear_group_words, word))] = true;
        }
    }
    for (const auto& node : map.at("stages")) replica.stages.push_back(read_stage(Map(node)));
    return replica;
}

std::vector<ReplicaPlan> read_replicas(const YAML::Node& root, const ModelSpec& model) {
    std::vector<ReplicaPlan> replicas;
    for (const auto& node : Map(root).at("replicas")) {
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
        types.weights = parse_word(format_words, map.text("weight_format"));
        map.read_any("fp8_linears", types.fp8_linears);
        map.read_any("fp8_one_order", plan.fp8_one_order);
    }
    map.read_any("expert_lora", plan.expert_lora);
    plan.compute = types.compute;
    plan.weights = types.weights;
    plan.fp8_linears = types.fp8_linears;
}

/// Plans of versions before there was a format have none.
void check_format(const Map& map) {
    std::string format(format_name);
    map.read_any("format", format);
    if (format != format_name) fail(cat("has format '", format, "', must be '", format_name, "'"));
}

Plan read_plan(const YAML::Node& root, const std::string& text) {
    const Map map(root);
    check_format(map);
    Plan plan;
    plan.model = read_model(text);
    plan.backend = parse_word(backend_words, map.text("backend"));
    read_number_types(map, plan);
    plan.device = usual_device(plan.backend);
    map.read_any("device", plan.device);  // plans of before have the usual one
    read_longest_sample(map, plan);
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
    std::string text = cat("format: ", format_name, "\n", model_text(plan.model));
    text += cat("backend: ", word_of(backend_words, plan.backend),
                "\ncompute: ", word_of(compute_words, plan.compute),
                "\nweight_format: ", traits_of(plan.weights).name,
                plan.fp8_linears ? "\nfp8_linears: true" : "",
                plan.fp8_one_order ? "\nfp8_one_order: true" : "",
                plan.expert_lora ? "\nexpert_lora: true" : "",
                "\ndevice: ", in_quotes(packing_device(plan)),
                "\nlongest_sample: ", plan.longest_sample,
                "\nbytes_per_rank: ", plan.bytes_per_rank, "\n");
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
    return plan_yaml::parse(text, [&](const YAML::Node& root) { return read_plan(root, text); });
}

}  // namespace loratrain
