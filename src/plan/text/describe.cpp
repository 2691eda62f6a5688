#include "plan/text/describe.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "config/job_words.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"
#include "plan/memory/offload.h"
#include "plan/memory/state_sizes.h"
#include "plan/memory/streamed_layers.h"
#include "plan/predict/predict.h"
#include "plan/sample_counts.h"
#include "plan/schedule/admission_rules.h"
#include "plan/stage_layers.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// "bf16", or "nf4 linears, bf16".
std::string weights_text(const Plan& plan) {
    const auto dense = traits_of(plan.weights).name;
    if (!plan.model.quantization) return std::string(dense);
    return cat(traits_of(plan.model.quantization->format).name, " linears, ", dense);
}

std::string summary(const Plan& plan) {
    const ModelSpec& model = plan.model;
    const ExpertSpec* experts = model.experts();
    return cat("model       ", model.family, ", ", model.layers, " layers, hidden size ",
               model.hidden_size, ", vocabulary ", model.vocab_size, ", ",
               format_fixed(static_cast<double>(matmul_parameters(model)) / 1e6, 1),
               " M matrix parameters",
               experts != nullptr
                   ? cat(" a token of ",
                         format_fixed(static_cast<double>(held_parameters(model)) / 1e6, 1), " M (",
                         experts->per_token, " of ", experts->count, " experts)")
                   : std::string(),
               ", ", weights_text(plan), plan.fp8_linears ? ", fp8 linears" : "",
               plan.fp8_one_order ? " (codes transposed at each backward to save memory)" : "",
               " on ", plan.backend == BackendKind::cuda ? "cuda" : "cpu", "\n");
}

std::string lanes_summary(const Plan& plan) {
    std::vector<std::string> lanes;
    for (const ReplicaPlan& replica : plan.replicas)
        lanes.push_back(std::to_string(replica.tensor));
    if (std::all_of(lanes.begin(), lanes.end(), [](const auto& text) { return text == "1"; })) {
        return "";
    }
    return cat("lanes       ", join(lanes, ", "), " per stage (ranks that share it",
               has_whole_experts(plan.model) ? ", each with whole experts" : "",
               "); the memory below is that of each\n");
}

std::string range_text(std::int32_t first, std::int32_t count) {
    return count == 1 ? std::to_string(first) : cat(first, "-", first + count - 1);
}

/// A line for each of several.
std::string replicas_summary(const Plan& plan) {
    if (plan.replicas.size() == 1) return "";
    std::string text;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaPlan& replica = plan.replicas[r];
        const auto ranks = replica.tensor * static_cast<std::int32_t>(replica.stages.size());
        text += cat("replica ", r, r < 10 ? "   " : "  ", "tp ", replica.tensor, ", pp ",
                    replica.stages.size(), ranks == 1 ? " on rank " : " on ranks ",
                    range_text(replica.stages.front().rank, ranks), ", samples up to ",
                    replica.microbatch_tokens, " tokens\n");
    }
    return text;
}

/// "8 of a, b": a layer in which the stage computes these adapters only.
std::string shared_layer_text(const Plan& plan, std::int32_t layer, const AdapterSpan& adapters) {
    constexpr std::size_t most_names = 3;
    std::vector<std::string> names;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        if (adapters.contains(static_cast<AdapterId>(a))) names.push_back(plan.adapters[a].name);
    }
    const bool few = names.size() <= most_names;
    return cat(layer, " of ", few ? join(names, ", ") : cat(names.size(), " adapters"));
}

/// "9-15, 8 of c, d, 16 of a": whole layers, then shared ones.
std::string layers_text(const Plan& plan, const StagePlan& stage) {
    const bool first_shared = !stage.first_layer_adapters.is_all();
    std::vector<std::string> words{
        range_text(stage.first_layer + (first_shared ? 1 : 0), whole_layers(stage))};
    if (first_shared) {
        words.push_back(shared_layer_text(plan, stage.first_layer, stage.first_layer_adapters));
    }
    if (!stage.last_layer_adapters.is_all()) {
        words.push_back(shared_layer_text(plan, stage.first_layer + stage.layer_count - 1,
                                          stage.last_layer_adapters));
    }
    return join(words, ", ");
}

void add_stages(const Plan& plan, std::size_t r, std::vector<TextRow>& rows) {
    const ReplicaPlan& replica = plan.replicas[r];
    const std::string prefix = plan.replicas.size() == 1 ? "" : cat(r, ".");
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        const StagePlan& stage = replica.stages[s];
        const MemoryPlan& memory = plan.memory[static_cast<std::size_t>(stage.rank)];
        TextRow ends;
        if (stage.has_embedding) ends.emplace_back("embedding");
        if (stage.has_head) ends.emplace_back("head");
        rows.push_back({cat(prefix, s), range_text(stage.rank, replica.tensor),
                        layers_text(plan, stage), join(ends, ", "), human_bytes(memory.weights),
                        human_bytes(memory.adapters), human_bytes(memory.activations),
                        human_bytes(memory.workspace), human_bytes(memory.engine),
                        human_bytes(memory.total())});
        if (plan.bytes_per_rank == 0) continue;
        const double used =
            static_cast<double>(memory.total()) / static_cast<double>(plan.bytes_per_rank);
        rows.back().push_back(format_fixed(100.0 * used, 1) + "%");
    }
}

std::string stage_table(const Plan& plan) {
    std::vector<TextRow> rows{{"stage", "rank", "layers", "with", "weights", "adapters",
                               "activations", "workspace", "engine", "total"}};
    if (plan.bytes_per_rank > 0) rows.front().emplace_back("of capacity");
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) add_stages(plan, r, rows);
    return text_table(rows, 4);
}

/// "1200", or "600 pairs", as global_batch_size counts.
std::string counted_samples(const AdapterPlan& adapter) {
    const std::string count = std::to_string(units_of(adapter.samples, adapter.group_samples));
    if (data_kind(adapter.group_samples) == DataKind::single) return count;
    return cat(count, " ", unit_word(adapter.group_samples));
}

/// Of more adapters than this a line for each dataset tells what those on it have.
constexpr std::size_t most_adapter_lines = 100;

/// A line of the table of adapters: the numbers of one, or between which those of several lie.
struct AdapterLine {
    std::string name;
    std::string samples;
    std::vector<std::int64_t> least = {};
    std::vector<std::int64_t> most = {};
    std::int64_t adapters = 0;

    void add(const AdapterPlan& adapter, const std::vector<std::int64_t>& numbers) {
        name = ++adapters == 1 ? adapter.name : cat(adapters, " adapters");
        samples = counted_samples(adapter);
        if (least.empty()) least = most = numbers;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            least[i] = std::min(least[i], numbers[i]);
            most[i] = std::max(most[i], numbers[i]);
        }
    }

    TextRow row(const std::string& dataset) const {
        TextRow cells{name, dataset};
        for (std::size_t i = 0; i < least.size(); ++i) {
            cells.push_back(least[i] == most[i] ? cat(least[i]) : cat(least[i], "-", most[i]));
        }
        cells.insert(cells.begin() + 3, samples);
        return cells;
    }
};

std::string adapter_table(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets) {
    const bool each = plan.adapters.size() <= most_adapter_lines;
    std::vector<std::pair<std::int64_t, std::int64_t>> epochs(datasets.size());
    for (std::size_t d = 0; d < datasets.size(); ++d) {
        for (const SampleInfo& sample : datasets[d].train) {
            epochs[d].first += sample.tokens;
            epochs[d].second += sample.targets;
        }
    }
    std::map<std::pair<std::size_t, DatasetId>, AdapterLine> lines;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        const AdapterJob& spec = job.adapters[a];
        const AdapterPlan& adapter = plan.adapters[a];
        const auto& [tokens, targets] = epochs[index(spec.dataset)];
        lines[{each ? a : 0, spec.dataset}].add(
            adapter, {spec.r, spec.global_batch_size, adapter.steps_per_epoch, adapter.total_steps,
                      tokens, targets});
    }
    std::vector<TextRow> rows{{"adapter", "dataset", "rank", "samples", "batch", "steps/epoch",
                               "steps", "tokens/epoch", "targets/epoch"}};
    for (const auto& [key, line] : lines) rows.push_back(line.row(job.dataset(key.second).name));
    return text_table(rows, 2);
}

std::string admission_summary(const Job& job, const Plan& plan) {
    const std::size_t first = plan.first_admitted.size();
    if (first == plan.adapters.size()) return "";
    const bool by_rule = first == most_admitted(job);
    return cat("at once      ", first, " of ", plan.adapters.size(), " adapters, the others wait: ",
               by_rule ? "schedule.policy or max_adapters says so" : "memory is full", "\n");
}

/// "none", "layer", or "layer, 17 of 80 layers", which are recomputed.
std::string recompute_text(const ReplicaView& view) {
    const ReplicaPlan& replica = view.replica;
    std::int32_t again = 0;
    std::int32_t all = 0;
    for (const StagePlan& stage : replica.stages) {
        again += recomputed_layers(view, stage);
        all += stage.layer_count;
    }
    const std::string word(word_of(recompute_words, replica.recompute));
    if (replica.recompute != Recompute::layer || again == all) return word;
    return cat(word, ", ", again, " of ", all, " layers");
}

/// Whether the job leaves to planning what its only replica recomputes. What has been chosen with
/// workers or deployments stands in the job too.
bool is_recompute_chosen(const ParallelJob& parallel) {
    if (parallel.recompute != Recompute::automatic) return parallel.recomputes_least;
    if (parallel.deployment.empty() || parallel.find_deployment) return true;
    const ReplicaJob& replica = parallel.deployment.front();
    return replica.recompute == Recompute::automatic || replica.recomputes_least;
}

std::string recompute_summary(const Job& job, const Plan& plan) {
    std::vector<std::string> words;
    for (const ReplicaView& view : views_of(plan)) words.push_back(recompute_text(view));
    if (words.size() > 1) return cat("recompute   ", join(words, "; "), "\n");
    const bool layer = plan.replicas.front().recompute == Recompute::layer;
    std::string why = "as the job says";
    if (is_recompute_chosen(job.parallel)) {
        why = layer ? "too little memory for the activations of all layers"
                    : "the activations of all layers fit";
        if (plan.bytes_per_rank == 0) why = "memory is not known";
    }
    return cat("recompute   ", words.front(), ": ", why, "\n");
}

/// What a stage's layers come from.
std::string source_of_layers(const ReplicaView& view, const StagePlan& stage) {
    if (!stage.owners.empty()) {
        std::vector<std::string> ranks;
        for (const std::int32_t rank : stage.owners) ranks.push_back(std::to_string(rank));
        return cat("from the memory of ranks ", join(ranks, ", "), ", one of which holds each");
    }
    const std::uint64_t read =
        static_cast<std::uint64_t>(streamed_layers(stage)) * host_layer_bytes(streamed_layer(view));
    const std::uint64_t kept = view.plan.memory[static_cast<std::size_t>(stage.rank)].host;
    return cat("from ", human_bytes(read), " of pinned host memory",
               kept == read ? ""
                            : cat("; ranks of a host share one copy, of which this rank holds ",
                                  human_bytes(kept)));
}

/// "streamed" line: what comes from where in every pass, and what part of the time computation
/// hides it, of microbatches like the first one.
std::string streamed_summary(const Plan& plan, const JointWindow& round) {
    std::string text;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        const auto& microbatches = round.replicas[r].microbatches;
        for (const StagePlan& stage : view.replica.stages) {
            if (streamed_layers(stage) == 0 || microbatches.empty()) continue;
            const AdapterLoads loads = loads_of(microbatches.front(), AttentionSpan(plan.model));
            const double hidden =
                hidden_share(costs_of(view), stage, loads, view.replica.recompute);
            text +=
                cat("streamed    rank ", stage.rank, ": ", streamed_layers(stage), " of ",
                    stage.layer_count, " layers, ", human_bytes(streamed_layer(view).host_bytes),
                    " each, ", source_of_layers(view, stage), "; ", format_fixed(100.0 * hidden, 0),
                    "% of their transfers hidden behind computation\n");
        }
    }
    return text;
}

/// "offloaded" line: layers whose activations go to the host, as streamed_summary's.
std::string offloaded_summary(const Plan& plan, const JointWindow& round) {
    std::string text;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        const auto& microbatches = round.replicas[r].microbatches;
        for (std::size_t s = 0; s < view.replica.stages.size(); ++s) {
            const StagePlan& stage = view.replica.stages[s];
            const std::int32_t offloaded = offloaded_layers(view, stage);
            if (offloaded == 0) continue;
            text += cat("offloaded   rank ", stage.rank, ": ", offloaded, " of ", stage.layer_count,
                        " layers, ", kept_layers(view, stage), " kept, ",
                        recomputed_layers(view, stage), " recomputed; ",
                        human_bytes(layer_slot_bytes(view)), " of activations each, ",
                        human_bytes(offload_host_bytes(view, s)), " of pinned host memory");
            const CostModel& costs = costs_of(view);
            if (costs.offload_per_token > 0.0 && !microbatches.empty()) {
                const AdapterLoads loads =
                    loads_of(microbatches.front(), AttentionSpan(plan.model));
                const double hidden =
                    hidden_offload_share(costs, stage, loads, view.replica.recompute);
                text += cat("; ", format_fixed(100.0 * hidden, 0),
                            "% of their copies hidden behind computation");
            }
            text += "\n";
        }
    }
    return text;
}

/// "looked at" lines: sizes of microbatches that were compared.
std::string trials_summary(const PlanReport& report) {
    if (report.trials.empty()) return "";
    std::vector<std::string> words;
    for (const LayoutTrial& trial : report.trials) {
        std::string& text = words.emplace_back(std::to_string(trial.microbatch_tokens));
        if (trial.adapters != report.trials.front().adapters) {
            text += cat(" beside ", trial.adapters, " adapters");
        }
        text += cat(" (", format_fixed(trial.tokens_per_second, 0), ")");
    }
    const std::string taken = words.front();
    words.erase(words.begin());
    return cat("looked at   microbatch_tokens (tokens/s by simulation): took ", taken,
               words.empty() ? "" : ", not ", join(words, ", "), "\n");
}

std::string tokens_text(std::int64_t tokens) {
    return cat(tokens, tokens >= most_fitting_tokens ? " or more" : "");
}

/// "memory" line: what would fit.
std::string fitting_summary(const Plan& plan, const FittingTokens& fitting) {
    if (plan.bytes_per_rank == 0 || plan.replicas.size() > 1) return "";
    return cat("memory      ", human_bytes(plan.bytes_per_rank),
               " a rank; microbatch_tokens that fit: ", tokens_text(fitting.none),
               " with recompute none, ", tokens_text(fitting.layer), " with layer\n");
}

/// "checkpoint" line: host memory for copies of the adapters that train at first, where that is
/// much. Without it a checkpoint copies one adapter after the other, while training waits.
std::string checkpoint_summary(const Job& job, const Plan& plan) {
    constexpr std::uint64_t much = std::uint64_t{1} << 30U;
    const bool beside = job.checkpoint.every_steps > 0 || job.checkpoint.every_minutes > 0;
    if (!beside || plan.memory.empty()) return "";
    const auto copies = checkpoint_copies(job, plan, plan.first_admitted);
    const std::uint64_t first = copies.front();
    if (first < much) return "";
    const std::uint64_t others =
        copies.size() > 1 ? *std::max_element(copies.begin() + 1, copies.end()) : 0;
    return cat("checkpoint  ", human_bytes(first), " of host memory on rank 0",
               others > 0 ? cat(", ", human_bytes(others), " on others") : "", " for copies of ",
               plan.first_admitted.size(), " adapters while they train; with less, training waits ",
               "while one adapter after the other is copied\n");
}

/// Of the policy that packs by costs, with more than one way to do it.
std::string packing_summary(const Job& job, const Plan& plan) {
    const bool several = plan.replicas.size() > 1 || plan.replicas.front().stages.size() > 1;
    if (job.schedule.policy != SchedulePolicy::balanced || !several) return "";
    const auto tensor = plan.replicas.front().tensor;
    return cat(
        "packing     microbatches are filled by costs ",
        built_in_costs(plan.model, plan.compute, packing_device(plan), tensor, plan.fp8_linears)
            .source,
        "\n");
}

std::string microbatch_summary(const Plan& plan, const JointWindow& round) {
    std::int64_t tokens = 0;
    std::int64_t padding = 0;
    for (const BatchPlan& batch : round.common().batches) {
        tokens += batch.tokens;
        padding += batch.padding;
    }
    std::int64_t room = 0;
    std::vector<std::string> most;
    std::vector<std::string> in_flight;
    std::vector<std::string> counts;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const std::size_t count = round.replicas[r].microbatches.size();
        room += plan.replicas[r].microbatch_tokens * static_cast<std::int64_t>(count);
        most.push_back(std::to_string(plan.replicas[r].microbatch_tokens));
        in_flight.push_back(std::to_string(plan.replicas[r].max_in_flight));
        counts.push_back(std::to_string(count));
    }
    const ReplicaPlan& replica = plan.replicas.front();
    std::string lora = cat("augmented matrix, up to ", replica.pad_columns, " columns");
    if (replica.pad_columns == 0) lora = cat("segments, ", replica.saved_columns, " columns");
    const std::vector<std::string> groups = joined_groups(replica);
    if (!groups.empty()) lora += cat("; one product of ", join(groups, ", of "));
    return cat("microbatch  at most ", join(most, ", "), " tokens, ", join(in_flight, ", "),
               " in flight; LoRA by ", lora, "\nfirst round ", join(counts, " + "),
               counts == std::vector<std::string>{"1"} ? " microbatch, " : " microbatches, ",
               tokens, " tokens", padding > 0 ? cat(", ", padding, " of padding") : "",
               "; room for ", room, " (unused room costs no time)\n");
}

}  // namespace

std::string describe(const Job& job, const Plan& plan, const PlanReport& report,
                     std::span<const DatasetInfo> datasets) {
    const JointWindow round = plan_joint_window(job, plan, datasets, at_start(plan), 1);
    const std::string& way = job.parallel.settled;
    return summary(plan) + (way.empty() ? way : cat("chosen      ", way, "\n")) +
           replicas_summary(plan) + lanes_summary(plan) + microbatch_summary(plan, round) +
           streamed_summary(plan, round) + offloaded_summary(plan, round) +
           packing_summary(job, plan) + trials_summary(report) + recompute_summary(job, plan) +
           fitting_summary(plan, report.fitting) + checkpoint_summary(job, plan) +
           admission_summary(job, plan) + "\n" + stage_table(plan) + "\n" +
           adapter_table(job, plan, datasets);
}

}  // namespace loratrain
