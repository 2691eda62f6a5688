#include "io/adapters/loader_rules.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "io/adapters/export_files.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

/// Of PEFT 0.21, beside LORA and VERA.
constexpr std::string_view peft_types[] = {"PROMPT_TUNING",
                                           "MULTITASK_PROMPT_TUNING",
                                           "P_TUNING",
                                           "PREFIX_TUNING",
                                           "ADALORA",
                                           "ADAMSS",
                                           "BOFT",
                                           "ADAPTION_PROMPT",
                                           "IA3",
                                           "BEFT",
                                           "LILY",
                                           "LOHA",
                                           "LOKR",
                                           "OFT",
                                           "POLY",
                                           "LN_TUNING",
                                           "FROD",
                                           "PVERA",
                                           "FOURIERFT",
                                           "GLORA",
                                           "XLORA",
                                           "HRA",
                                           "VBLORA",
                                           "UNILORA",
                                           "CPT",
                                           "MISS",
                                           "RANDLORA",
                                           "ROAD",
                                           "TRAINABLE_TOKENS",
                                           "HIRA",
                                           "SHIRA",
                                           "C3A",
                                           "WAVEFT",
                                           "OSF",
                                           "DELORA",
                                           "GRALORA",
                                           "CARTRIDGE",
                                           "TINYLORA",
                                           "PSOFT",
                                           "PEANUT",
                                           "SHADOW",
                                           "SUPERTUNING",
                                           "DEFT"};
constexpr std::array<std::int64_t, 9> vllm_ranks{1, 8, 16, 32, 64, 128, 256, 320, 512};
constexpr std::int64_t vllm_default_rank = 16;
using Texts = std::vector<std::string>;

void add_limited(Texts& texts, const Texts& more) {
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i < std::min(most, more.size()); ++i) texts.push_back(more[i]);
    if (more.size() > most) texts.push_back(cat("and ", more.size() - most, " more like these"));
}

/// Of adapter_config.json, for programs that read it: what they do not do as it was trained.
void judge_variants(const ExportFiles& of, Loader loader, LoaderResult& result) {
    for (const ConfigVariant& variant : of.variants) {
        const std::string text = of.config.text(variant);
        if (!variant.loads_in(loader)) result.obstacles.push_back(text);
        if (!variant.known) result.advice.push_back(text + "; this program ignores it");
    }
}

/// The rules that vLLM and SGLang share.
Texts missing_keys(const ExportFiles& of) {
    Texts missing;
    for (const char* key : {"r", "lora_alpha", "target_modules"}) {
        if (of.get(key).is_null()) missing.push_back(cat("adapter_config.json has no ", key));
    }
    return missing;
}

/// Scales that differ from lora_alpha of adapter_config.json over each tensor's own rank.
Texts other_scales(const ExportFiles& of) {
    Texts texts;
    if (of.get("use_rslora") == true) {
        texts.emplace_back(
            "use_rslora: it divides lora_alpha by the rank, not by the root of the rank");
    }
    if (of.has("alpha_pattern")) {
        texts.emplace_back("alpha_pattern: it uses one lora_alpha for all modules");
    }
    return texts;
}

bool has_lora_in_experts(const ExportFiles& of) {
    return std::any_of(of.ranks.begin(), of.ranks.end(), [](const auto& module) {
        return expert_in_name(module.first) != no_expert;
    });
}

bool is_on_all_of_experts(const ExportFiles& of) {
    return of.linears.contains(Linear::gate) && of.linears.contains(Linear::up) &&
           of.linears.contains(Linear::down);
}

/// PEFT makes of them LoRA on transformers 5's two tensors, in which gate and up are one.
void judge_experts(const ExportFiles& of, const ModelSpec& model, LoaderResult& result) {
    if (!peft_converts_targets(model) && !of.config.names_tensors_of_experts()) {
        result.obstacles.push_back(cat("target_parameters does not name ",
                                       tensor_of_experts_gate_up, " and ", tensor_of_experts_down,
                                       ": PEFT does not find experts of ", model.family,
                                       " by target_modules"));
    }
    const bool gate = of.linears.contains(Linear::gate);
    if (!is_on_all_of_experts(of) && (gate || of.linears.contains(Linear::up))) {
        result.obstacles.emplace_back(
            "LoRA in experts is neither on gate_proj, up_proj and down_proj nor on down_proj "
            "alone");
    }
    if (gate && of.get("use_rslora") == true) {
        result.obstacles.emplace_back(
            "use_rslora: it would scale gate_proj and up_proj of experts by sqrt(2) too much");
    }
    const Json& dropout = of.get("lora_dropout");
    if (dropout.is_number() && dropout.get<double>() > 0.0) {
        result.obstacles.emplace_back("lora_dropout is not 0, which LoRA in experts does not take");
    }
    result.advice.emplace_back("LoRA in experts was tried with PEFT 0.21 and transformers 5.24");
}

/// Keys that LoraConfig does not take together.
Texts refused_configs(const ExportFiles& of) {
    Texts texts;
    const bool layers = !of.get("layers_to_transform").is_null();
    if (of.get("target_modules").is_string() && (layers || of.has("layers_pattern"))) {
        texts.emplace_back(
            "target_modules is a regular expression, which PEFT refuses beside layers_to_transform "
            "or layers_pattern");
    }
    if (of.has("layers_pattern") && !layers) {
        texts.emplace_back(
            "layers_pattern is given without layers_to_transform, which PEFT refuses");
    }
    if (of.get("init_lora_weights") == "loftq" && !of.has("loftq_config")) {
        texts.emplace_back("init_lora_weights is \"loftq\" without loftq_config");
    }
    return texts;
}

LoaderResult peft(const ExportFiles& of, const ModelSpec& model) {
    LoaderResult result{"PEFT", {}, {}, {}};
    const Json& type = of.get("peft_type");
    if (type != "LORA" && type != "VERA") {
        const bool known =
            type.is_string() && std::find(std::begin(peft_types), std::end(peft_types),
                                          type.get<std::string>()) != std::end(peft_types);
        const std::string text = "peft_type is " + json_text(type);
        if (known) {
            result.unknown = text + ", whose tensors are not checked here";
        } else {
            result.obstacles.push_back(text + ", which PEFT 0.21 does not know");
        }
        return result;
    }
    judge_variants(of, Loader::peft, result);
    add_limited(result.obstacles, refused_configs(of));
    add_limited(result.obstacles, faults_of_tensors(of, Loader::peft, model));
    add_limited(result.obstacles, tensors_left_out(of));
    if (has_lora_in_experts(of)) judge_experts(of, model, result);
    if (result.obstacles.empty()) result.unknown = of.unreadable;
    return result;
}

/// Of what stands beside the linears of layers.
Texts vllm_embeddings(const ExportFiles& of, const ModelSpec& model) {
    const Family* family = family_named(model.family);
    const bool takes = family != nullptr && family->vllm_embeddings && model.wrapper.empty();
    Texts texts;
    if (!takes && of.linears.contains(Linear::head)) {
        texts.push_back(cat("its model of ", model.family, " has no LoRA on lm_head"));
    }
    for (const std::string& other : other_tensors(of)) {
        const bool embedding = other.find(".lora_embedding_") != std::string::npos;
        if (!takes || !embedding) texts.push_back(other);
    }
    return texts;
}

/// What a loader that reads LoRA alone makes of the configuration and the tensors.
LoaderResult judged(const char* name, const ExportFiles& of, Loader loader,
                    const ModelSpec& model) {
    LoaderResult result{name, {}, {}, {}};
    if (!of.is_lora()) result.obstacles.emplace_back("it reads only peft_type LORA");
    judge_variants(of, loader, result);
    add_limited(result.obstacles, faults_of_tensors(of, loader, model));
    return result;
}

/// Of gated delta nets vLLM 0.33 packs in_proj_qkv and in_proj_z into one linear of four parts, the
/// first of which it finds by in_proj_qkv.
Texts faults_of_delta_nets(const ExportFiles& of) {
    Texts texts;
    for (const auto& [module, rank] : of.ranks) {
        constexpr std::string_view end = "in_proj_z";
        if (!module.ends_with(end)) continue;
        const std::string block = module.substr(0, module.size() - end.size());
        if (of.ranks.count(block + "in_proj_qkv") > 0) continue;
        texts.push_back(
            cat(module, " has LoRA, but in_proj_qkv has none: vLLM packs the two into one"));
    }
    return texts;
}

LoaderResult vllm(const ExportFiles& of, const ModelSpec& model) {
    LoaderResult result = judged("vLLM", of, Loader::vllm, model);
    Texts& no = result.obstacles;
    if (model.delta_nets() != nullptr) {
        add_limited(no, faults_of_delta_nets(of));
        result.advice.emplace_back("gated delta nets were tried with the files of vLLM 0.33");
    }
    add_limited(no, missing_keys(of));
    if (of.is_lora()) add_limited(no, vllm_embeddings(of, model));
    if (has_lora_in_experts(of) && !is_on_all_of_experts(of)) {
        no.emplace_back(
            "LoRA in experts is not on gate_proj, up_proj and down_proj together: vLLM packs the "
            "three into one");
    }
    const std::int64_t rank = of.largest_rank();
    const auto* const fitting = std::find_if(vllm_ranks.begin(), vllm_ranks.end(),
                                             [rank](std::int64_t most) { return rank <= most; });
    if (fitting == vllm_ranks.end()) {
        no.push_back(cat("rank ", rank, " is above 512"));
    } else if (rank > vllm_default_rank) {
        result.advice.push_back(cat("start it with --max-lora-rank ", *fitting));
    }
    if (of.has("rank_pattern") || of.has("alpha_pattern")) {
        result.advice.emplace_back(
            "versions before 2026 ignore rank_pattern and alpha_pattern without a message");
    }
    return result;
}

LoaderResult sglang(const ExportFiles& of, const ModelSpec& model) {
    LoaderResult result = judged("SGLang", of, Loader::sglang, model);
    if (model.delta_nets() != nullptr) result.unknown = "nobody tried it with gated delta nets";
    add_limited(result.obstacles, missing_keys(of));
    if (of.is_lora()) add_limited(result.obstacles, other_tensors(of));
    const bool key = of.linears.contains(Linear::k) || of.linears.contains(Linear::v);
    if (key && !of.linears.contains(Linear::q)) {
        result.advice.emplace_back(
            "versions before pull request 28199 break with k_proj or v_proj and no q_proj");
    }
    return result;
}

LoaderResult llama_cpp(const ExportFiles& of, const ModelSpec& model) {
    LoaderResult result = judged("llama.cpp", of, Loader::llama_cpp, model);
    add_limited(result.obstacles, other_scales(of));
    if (of.is_lora()) add_limited(result.obstacles, other_tensors(of));
    if (model.tie_word_embeddings && of.linears.contains(Linear::head)) {
        result.obstacles.emplace_back("LoRA on lm_head of a model with tied embeddings");
    }
    if (of.linears.contains(Linear::delta_qkvz)) {
        result.obstacles.emplace_back("LoRA on in_proj_qkvz, whose rows its converter reorders");
    }
    if (model.delta_nets() != nullptr) {
        result.unknown =
            "its converter takes LoRA on gated delta nets, but nobody compared the logits";
    }
    result.advice.emplace_back(
        "convert_lora_to_gguf.py needs the base's config.json: give its folder as --base");
    return result;
}

}  // namespace

std::vector<LoaderResult> check_loaders(const std::string& dir, const ModelSpec& model) {
    const ExportFiles found = read_export_files(dir, model);
    return {peft(found, model), vllm(found, model), sglang(found, model), llama_cpp(found, model)};
}

}  // namespace loratrain
