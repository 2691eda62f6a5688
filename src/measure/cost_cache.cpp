#include "measure/cost_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/gpu_info.h"
#include "base/log.h"
#include "base/system.h"
#include "base/version.h"
#include "config/text_archive.h"
#include "io/files.h"
#include "measure/profile_loads.h"
#include "plan/cost_fields.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/streamed_layers.h"
#include "plan/text/model_text.h"

namespace loratrain {

namespace {

constexpr const char* format_name = "loratrain-costs-3";

/// The file's contents.
struct CostFile {
    CostTable costs;
};

template <class Archive>
void fields(Archive& archive, CostFile& file) {
    archive.format(format_name);
    archive("costs", file.costs);
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

/// "{mixer {kind attention, heads 32}, mlp {...}}": a tree in one line.
std::string line_of(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map && node.kind != YamlNode::Kind::list) return node.text;
    std::vector<std::string> words;
    for (const YamlNode& child : node.children) {
        words.push_back(child.key.empty() ? line_of(child) : cat(child.key, " ", line_of(child)));
    }
    return cat("{", join(words, ", "), "}");
}

/// In powers of two; jobs of usual lengths are alike.
std::string longest_text(const Plan& plan) {
    const auto longest = static_cast<std::uint64_t>(longest_profiled(plan));
    if (longest <= static_cast<std::uint64_t>(usual_longest_sample)) return "";
    return cat("; samples of up to ", std::bit_ceil(longest));
}

}  // namespace

OrderedJson cost_json(const CostModel& costs) {
    return parse_ordered_json(json_text(text_tree(costs)));
}

std::string costs_to_json(const CostTable& table) {
    CostFile file{table};
    for (auto& [key, costs] : file.costs) {  // what this process has met
        costs.host.new_rows.met = 0;
        costs.host.new_targets.met = 0;
    }
    return json_text(text_tree(file));
}

CostTable costs_from_json(const std::string& text, const std::string& where) {
    const TextForm form{"measured costs", "costs are measured anew and replace it"};
    return read_text_as<CostFile>(text, where, form).costs;
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
               "; ", m.family, " hidden ", m.hidden_size, " vocabulary ", m.vocab_size,
               " layers of ", line_of(text_tree(m.descriptions)), "; LoRA ",
               admitted_parameters(job, plan), residual_starts_text(job, plan), " in ",
               view.replica.pad_columns, " columns",
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
    warn_at_failure(write,
                    "measured costs cannot be written and are measured again by the next run: ");
}

}  // namespace loratrain
