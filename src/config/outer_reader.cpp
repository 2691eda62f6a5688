#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/adapter_reader.h"
#include "config/job_words.h"
#include "config/key_writer.h"
#include "config/section_reader.h"

/// What an adapter trains outside the layers: rows of tokens, LoRA on the head and the embedding.

namespace loratrain {

namespace {

constexpr const char* tokens_key = "trainable_token_indices";

}  // namespace

const OwnKey<AdapterJob> trained_tokens_key{
    [](SectionReader& section, AdapterJob& job) {
        const YamlNode* node = section.find(tokens_key);
        if (node == nullptr) return;
        job.trainable_token_indices.clear();
        const bool named = node->kind == YamlNode::Kind::map && node->children.size() == 1 &&
                           node->children.front().key == module_name(Linear::embedding);
        if (node->kind == YamlNode::Kind::map && !named) {
            std::vector<std::string> names;
            for (const YamlNode& child : node->children) names.push_back(child.key);
            return section.problem(node->place, tokens_key,
                                   cat("is of ", names.empty() ? "no module" : join(names, ", "),
                                       ", not of embed_tokens alone"),
                                   "give {embed_tokens: [32000, 32001]}, or the list alone");
        }
        read_token_ids(section, named ? node->children.front() : *node, tokens_key,
                       job.trainable_token_indices);
    },
    [](KeyWriter& out, const AdapterJob& job) {
        write_token_ids(out, tokens_key, job.trainable_token_indices);
    }};

namespace {

/// "lm_head and embed_tokens", of which those that the adapter targets.
std::string outer_names(const AdapterJob& job) {
    std::vector<std::string> names;
    if (job.targets_head) names.emplace_back(module_name(Linear::head));
    if (job.targets_embedding) names.emplace_back(module_name(Linear::embedding));
    return join(names, " and ");
}

std::string ratio_text(const AdapterJob& job) {
    return cat("loraplus_lr_ratio: ", format_exact(job.loraplus_lr_ratio));
}

void check_trained_tokens(SectionReader& section, const AdapterJob& job) {
    const auto refuse = [&](const std::string& what, const char* hint) {
        section.problem(section.place_of(tokens_key), tokens_key, what, hint);
    };
    std::set<std::int32_t> known;
    for (const std::int32_t token : job.trainable_token_indices) {
        if (!known.insert(token).second) {
            return refuse(cat("has ", token, " twice"), "name each token once");
        }
    }
    if (known.empty()) return;
    if (job.is_vera() || has_residual_start(job.form)) {
        refuse(cat("goes with LoRA and DoRA alone, not with ",
                   job.is_vera()
                       ? std::string("peft_type: vera")
                       : cat("init_lora_weights: ", word_of(initial_words, job.init_lora_weights))),
               "leave it out, or leave out peft_type: vera or the init_lora_weights that makes "
               "another form");
    }
    if (job.targets_outer()) {
        refuse(cat("does not go with ", outer_names(job), " in target_modules"),
               "leave it out, or take lm_head and embed_tokens out of target_modules");
    }
    if (job.loraplus_lr_ratio != 1.0) {
        refuse(cat("does not go with ", ratio_text(job)), "leave one of them out");
    }
}

}  // namespace

void check_outer(SectionReader& section, const AdapterJob& job) {
    check_trained_tokens(section, job);
    if (!job.targets_outer() || has_token_rows(job.form)) return;
    const bool plain = job.form.peft_switches.empty() && job.form.tensors.size() == 2 &&
                       job.form.tensors[0].role == TensorRole::a;
    const bool by_layers = job.modules && !job.modules->keys().layers_to_transform.empty();
    const std::string name = module_name(job.targets_head ? Linear::head : Linear::embedding);
    const auto refuse = [&](const std::string& what, const char* hint) {
        section.problem(section.place_of("target_modules"), "target_modules", what, hint);
    };
    if (!plain) {
        refuse(name + " can be trained with plain LoRA alone",
               "leave it out of target_modules, or leave out use_dora, peft_type or the "
               "init_lora_weights that makes another form");
    }
    if (job.targets_head && job.lora_dropout > 0.0) {
        refuse(cat("lm_head does not go with lora_dropout: ", format_exact(job.lora_dropout)),
               "set lora_dropout: 0, or leave it out");
    }
    if (by_layers) {
        refuse(name + " is in no layer of layers_to_transform",
               "leave it out, or name modules with their layers, as in 0.self_attn.q_proj");
    }
    if (job.targets_embedding && job.loraplus_lr_ratio != 1.0) {
        refuse(cat("embed_tokens does not go with ", ratio_text(job)),
               "leave one of them out: PEFT gives embeddings a rate of their own then");
    }
}

}  // namespace loratrain
