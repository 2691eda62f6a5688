#pragma once

#include <string>
#include <vector>

#include "base/archive.h"
#include "base/error.h"
#include "config/job_words.h"
#include "plan/cost/device.h"
#include "plan/cost_fields.h"
#include "plan/plan.h"
#include "plan/tensor_shard.h"
#include "plan/text/model_text.h"

/// Fields of plans, for all their forms (base/archive.h).
namespace loratrain {

inline constexpr std::array<Word<DType>, 2> compute_words{
    {{"fp32", DType::f32}, {"bf16", DType::bf16}}};

/// [first, one past the last]
template <class Archive>
void fields(Archive& archive, AdapterSpan& span) {
    archive.list(at_least(0, span.begin), at_least(0, span.end));
}

template <class Archive>
void fields(Archive& archive, StagePlan& stage) {
    archive("rank", stage.rank);
    archive("first_layer", stage.first_layer);
    archive("layer_count", stage.layer_count);
    archive("has_embedding", stage.has_embedding);
    archive("has_head", stage.has_head);
    archive("first_layer_adapters", stage.first_layer_adapters);
    archive("last_layer_adapters", stage.last_layer_adapters);
    archive.unless("resident_layers", stage.resident_layers, all_layers);
    archive.unless("kept_layers", stage.kept_layers, 0);
    archive.unless("offloaded_layers", stage.offloaded_layers, 0);
    archive.unless("owners", stage.owners, no_entries);
}

template <class Archive>
void fields(Archive& archive, ReplicaPlan& replica) {
    std::vector<std::string> joined = joined_groups(replica);
    archive("tensor", replica.tensor);
    archive("microbatch_tokens", replica.microbatch_tokens);
    archive("recompute", worded(replica.recompute, recompute_words));
    archive("max_in_flight", replica.max_in_flight);
    archive("pad_columns", replica.pad_columns);
    archive("saved_columns", replica.saved_columns);
    archive.unless("texts_at_once", replica.texts_at_once, few_texts);
    archive.unless("joined", joined, no_entries);
    archive("stages", replica.stages);
    if constexpr (Archive::reads) {
        for (const Word<LinearGroup>& group : linear_group_words) {
            const auto count = std::erase(joined, group.text);
            replica.joined[static_cast<std::size_t>(group.value)] = count > 0;
        }
        if (!joined.empty()) throw Error(cat("joined: '", joined.front(), "' is not known"));
        if (replica.stages.empty()) throw Error("a replica has no stage");
    }
}

/// [samples, taken]
template <class Archive>
void fields(Archive& archive, FileShare& file) {
    archive.list(file.samples, file.taken);
}

template <class Archive>
void fields(Archive& archive, AdapterPlan& adapter) {
    archive("name", adapter.name);
    archive("samples", adapter.samples);
    archive.unless("group_samples", adapter.group_samples, 1);
    archive("steps_per_epoch", adapter.steps_per_epoch);
    archive("total_steps", adapter.total_steps);
    archive.unless("files", adapter.files, no_entries);
    archive.unless("eval_files", adapter.eval_files, no_entries);
}

template <class Archive>
void fields(Archive& archive, MemoryPlan& memory) {
    archive("weights", memory.weights);
    archive("adapters", memory.adapters);
    archive("activations", memory.activations);
    archive("workspace", memory.workspace);
    archive("engine", memory.engine);
    archive.unless("host", memory.host, std::uint64_t{0});
    archive.unless("host_activations", memory.host_activations, std::uint64_t{0});
}

template <class Archive>
void fields(Archive& archive, DegreeCosts& degree) {
    archive("tensor", degree.tensor);
    archive("costs", degree.costs);
}

/// Plan::measured stays where it was measured.
template <class Archive>
void fields(Archive& archive, Plan& plan) {
    std::string device(packing_device(plan));
    archive.format("loratrain-plan-3");
    archive("model", plan.model);
    archive("backend", worded(plan.backend, backend_words));
    archive("compute", worded(plan.compute, compute_words));
    archive("weight_format", worded(plan.weights, format_words));
    archive.unless("fp8_linears", plan.fp8_linears, false);
    archive.unless("fp8_one_order", plan.fp8_one_order, false);
    archive.unless("expert_lora", plan.expert_lora, false);
    archive.unless("dora_outputs", plan.dora_outputs, false);
    archive("device", device);
    archive("longest_sample", plan.longest_sample);
    archive("bytes_per_rank", plan.bytes_per_rank);
    archive("costs", plan.costs);
    archive.unless("other_costs", plan.other_costs, no_entries);
    archive("replicas", plan.replicas);
    archive("adapters", plan.adapters);
    archive("adapter_capacity", plan.adapter_capacity);
    archive("first_admitted", plan.first_admitted);
    archive("memory", plan.memory);
    if constexpr (Archive::reads) {
        plan.device = device;
        plan.joint = plan.replicas.size() > 1;
        if (plan.replicas.empty()) throw Error("a plan has no replica");
        for (const ReplicaPlan& replica : plan.replicas) {
            if (can_shard(plan.model, replica.tensor)) continue;
            throw Error(cat("the model cannot be shared by ", replica.tensor, " lanes"));
        }
    }
}

}  // namespace loratrain
