#include "measure/cost_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/gpu_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "base/version.h"
#include "base/warn_at_failure.h"
#include "io/files.h"
#include "io/json_text.h"
#include "measure/profile_loads.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

constexpr const char* format_name = "loratrain-costs-2";

OrderedJson link_json(const LinkCost& link) {
    return {link.fixed, link.per_byte};
}

OrderedJson line_json(const CostLine& line) {
    return {line.fixed, line.per_token, line.per_square, line.per_segment};
}

OrderedJson line_json(const HostLine& line) {
    return {line.fixed, line.per_segment};
}

OrderedJson line_json(const NewShapeLine& line) {
    return {line.each, line.first, line.per_row};
}

OrderedJson host_json(const HostCosts& host) {
    return {{"layer_forward", line_json(host.layer_forward)},
            {"layer_backward", line_json(host.layer_backward)},
            {"forward", line_json(host.forward)},
            {"backward", line_json(host.backward)},
            {"head", host.head},
            {"new_rows", line_json(host.new_rows)},
            {"new_targets", line_json(host.new_targets)}};
}

double non_negative(const OrderedJson& value) {
    const double number = value.get<double>();
    if (!std::isfinite(number) || number < 0) throw Error(cat(number, " is no cost"));
    return number;
}

CostLine line_from(const OrderedJson& json) {
    constexpr std::size_t before = 3;  // in files of before
    return {non_negative(json.at(0)), non_negative(json.at(1)), non_negative(json.at(2)),
            json.size() > before ? non_negative(json.at(before)) : 0.0};
}

HostLine host_line_from(const OrderedJson& json) {
    return {non_negative(json.at(0)), non_negative(json.at(1))};
}

NewShapeLine shapes_from(const OrderedJson& json) {
    constexpr std::size_t before = 2;  // in files of before
    return {non_negative(json.at(0)), non_negative(json.at(1)), 0,
            json.size() > before ? non_negative(json.at(before)) : 0.0};
}

HostCosts host_from(const OrderedJson& json) {
    return {host_line_from(json.at("layer_forward")),
            host_line_from(json.at("layer_backward")),
            host_line_from(json.at("forward")),
            host_line_from(json.at("backward")),
            non_negative(json.at("head")),
            shapes_from(json.at("new_rows")),
            shapes_from(json.at("new_targets"))};
}

LinkCost link_from(const OrderedJson& json) {
    return {non_negative(json.at(0)), non_negative(json.at(1))};
}

CostModel model_from(const OrderedJson& json) {
    CostModel costs;
    costs.layer_forward = line_from(json.at("layer_forward"));
    costs.layer_backward = line_from(json.at("layer_backward"));
    costs.head = line_from(json.at("head"));
    costs.host = host_from(json.at("host_work"));
    costs.step_fixed = non_negative(json.at("step").at(0));
    costs.step_per_parameter = non_negative(json.at("step").at(1));
    costs.message = link_from(json.at("message"));
    if (json.contains("between_hosts")) costs.between_hosts = link_from(json.at("between_hosts"));
    costs.first_layer_saving = non_negative(json.at("first_layer_saving"));
    costs.full_speed_ranks = non_negative(json.at("host").at(0));
    costs.ranks_per_host = json.at("host").at(1).get<std::int32_t>();
    if (json.contains("layer_transfer")) {  // not in files of before
        costs.layer_transfer = non_negative(json.at("layer_transfer"));
    }
    costs.source = json.at("source").get<std::string>();
    return costs;
}

/// A missing file has no costs.
CostTable read_table(const std::string& path) {
    if (path.empty() || !std::filesystem::exists(path)) return {};
    try {
        return costs_from_json(read_text(path), path);
    } catch (const std::exception& error) {
        log::warn(error.what());
        return {};
    }
}

std::string processor_name() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("model name")) continue;
        const std::size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "cpu";
}

/// Parameters a layer of the adapters that train first.
std::int64_t admitted_parameters(const Job& job, const Plan& plan) {
    std::int64_t count = 0;
    for (const AdapterId id : plan.first_admitted) {
        count += adapter_parameters(job.adapter(id), plan.model, 1);
    }
    return count;
}

/// "" without any: of adapters that also multiply what they started with.
std::string residual_starts_text(const Job& job, const Plan& plan) {
    const auto count =
        std::count_if(plan.first_admitted.begin(), plan.first_admitted.end(),
                      [&](AdapterId id) { return has_residual_start(job.adapter(id).form); });
    return count == 0 ? "" : cat(", ", count, " of them differences");
}

/// In powers of two; jobs of usual lengths are alike.
std::string sizes_text(const AttentionSpec& of) {
    return cat(" heads ", of.heads, "/", of.kv_heads, " x ", of.head_dim);
}

std::string sizes_text(const DenseSpec& mlp) {
    return cat(" intermediate ", mlp.size);
}

std::string sizes_text(const ExpertSpec& experts) {
    return cat(" experts ", experts.per_token, "/", experts.count, " x ", experts.size);
}

std::string longest_text(const Plan& plan) {
    const auto longest = static_cast<std::uint64_t>(longest_profiled(plan));
    if (longest <= static_cast<std::uint64_t>(usual_longest_sample)) return "";
    return cat("; samples of up to ", std::bit_ceil(longest));
}

}  // namespace

OrderedJson cost_json(const CostModel& costs) {
    OrderedJson json{{"source", costs.source},
                     {"layer_forward", line_json(costs.layer_forward)},
                     {"layer_backward", line_json(costs.layer_backward)},
                     {"first_layer_saving", costs.first_layer_saving},
                     {"head", line_json(costs.head)},
                     {"host_work", host_json(costs.host)},
                     {"step", {costs.step_fixed, costs.step_per_parameter}},
                     {"message", link_json(costs.message)},
                     {"layer_transfer", costs.layer_transfer},
                     {"host", {costs.full_speed_ranks, costs.ranks_per_host}}};
    if (costs.between_hosts) json["between_hosts"] = link_json(*costs.between_hosts);
    return json;
}

std::string costs_to_json(const CostTable& table) {
    OrderedJson json{{"format", format_name}, {"costs", OrderedJson::object()}};
    for (const auto& [key, costs] : table) json["costs"][key] = cost_json(costs);
    return dump_json(json, 2) + "\n";
}

CostTable costs_from_json(const std::string& text, const std::string& where) {
    try {
        const OrderedJson json = parse_ordered_json(text);
        if (json.at("format") != format_name) throw Error("another version's format");
        CostTable table;
        for (const auto& [key, costs] : json.at("costs").items()) table[key] = model_from(costs);
        return table;
    } catch (const std::exception& error) {
        throw InputError(where, cat("cannot be read as measured costs: ", error.what()),
                         "costs are measured anew and replace it");
    }
}

std::string cost_key(const Job& job, const ReplicaView& view, const std::string& device,
                     int ranks_per_node) {
    const Plan& plan = view.plan;
    const ModelSpec& m = plan.model;
    const std::int32_t lanes = view.replica.tensor;
    const std::vector<std::string> groups = joined_groups(view.replica);
    return cat("loratrain ", git_hash(), "; ", device, "; ", ranks_per_node, " ranks a host; ",
               to_string(plan.compute), ", weights in ", traits_of(linear_format(plan)).name,
               plan.fp8_linears ? ", fp8 linears" : "", plan.fp8_one_order ? " in one order" : "",
               "; ", m.family, " hidden ", m.hidden_size,
               std::visit([](const auto& mlp) { return sizes_text(mlp); }, m.layer(0).mlp),
               std::visit([](const auto& mixer) { return sizes_text(mixer); }, m.layer(0).mixer),
               " vocabulary ", m.vocab_size, "; LoRA ", admitted_parameters(job, plan),
               residual_starts_text(job, plan), " in ", view.replica.pad_columns, " columns",
               may_stream(view.replica) ? "; layers stream" : "",
               groups.empty() ? "" : cat("; one product of ", join(groups, ", of ")),
               lanes > 1 ? cat("; ", lanes, " lanes") : "", longest_text(plan));
}

std::string rank_device(BackendKind backend, int local_rank, int threads) {
    if (backend == BackendKind::cuda) return gpu_info(local_rank).name;
    return cat(processor_name(), ", ", threads, threads == 1 ? " thread" : " threads");
}

std::string cost_cache_path() {
    if (const char* path = std::getenv("LORATRAIN_COST_CACHE")) return path;
    const std::string xdg = environment("XDG_CACHE_HOME");
    const std::string home = environment("HOME");
    if (xdg.empty() && home.empty()) return "";
    return (xdg.empty() ? home + "/.cache" : xdg) + "/loratrain/costs.json";
}

std::optional<CostModel> find_costs(const std::string& path, const std::string& key) {
    const CostTable table = read_table(path);
    const auto found = table.find(key);
    if (found == table.end()) return std::nullopt;
    return found->second;
}

void keep_costs(const std::string& path, const std::string& key, const CostModel& costs) {
    if (path.empty()) return;
    CostTable table = read_table(path);
    table[key] = costs;
    const auto write = [&] {
        const std::string folder = std::filesystem::path(path).parent_path().string();
        if (!folder.empty()) make_directory(folder);
        write_text_atomic(path, costs_to_json(table));
    };
    warn_at_failure(write, "measured costs are not kept: ");
}

}  // namespace loratrain
