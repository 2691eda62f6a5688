#include "io/adapters/loader_rules.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/adapters/adapter_config.h"
#include "io/adapters/adapter_file.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

constexpr const char* lora_a = "lora_A.weight";
constexpr const char* lora_b = "lora_B.weight";
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

/// An adapter as its files tell it.
struct Export {
    AdapterConfig config;
    std::vector<ConfigVariant> variants;
    std::optional<AdapterJob> job;  ///< what the config says of modules, where it can be read
    std::string unreadable;         ///< else why not
    std::map<std::string, SafetensorsEntry> tensors;
    std::map<std::string, std::int64_t> ranks;  ///< of modules with lora_A, by name in the base
    std::set<Linear> linears;                   ///< that have LoRA

    const Json& get(const char* key) const { return config.get(key); }
    bool has(const char* key) const { return config.has(key); }
    bool is_lora() const { return get("peft_type") == "LORA"; }
    std::int64_t largest_rank() const {
        std::int64_t largest = 0;
        for (const auto& [module, rank] : ranks) largest = std::max(largest, rank);
        return largest;
    }
};

/// The linear that the tensor belongs to, of a base model's names; nothing where there is none.
std::optional<Linear> linear_of(const std::string& module, const ModelSpec& model) {
    const std::optional<Linear> linear = linear_of_module(module);
    if (!linear || linear == Linear::embedding || !has_target(model, *linear)) return std::nullopt;
    const std::int64_t layer = linear == Linear::head ? 0 : layer_in_name(module);
    if (layer < 0 || layer >= model.layers) return std::nullopt;
    const std::int32_t expert = expert_in_name(module);
    const LayerLinear target = target_of(model, layer, *linear);
    const TargetExperts& experts = target.experts;
    const bool fits =
        target.is_there && expert >= experts.first && expert < experts.first + experts.count;
    if (!fits || module_path(layer, *linear, expert) != module) return std::nullopt;
    return linear;
}

/// "model.layers.0.mlp.up_proj" of a tensor's name and what is behind it; "" = another name.
std::string module_of(const std::string& name, const std::string& suffix) {
    constexpr std::string_view base = "base_model.model.";
    if (!name.starts_with(base) || !name.ends_with("." + suffix)) return "";
    return name.substr(base.size(), name.size() - base.size() - suffix.size() - 1);
}

Export read_export(const std::string& dir, const ModelSpec& model) {
    Export found{AdapterConfig(dir + "/adapter_config.json", model), {}, {}, {}, {}, {}, {}};
    if (found.is_lora()) found.variants = found.config.variants(lora_form());
    Problems problems;
    found.job = found.config.modules(problems);
    if (!found.job) found.unreadable = problems.list().front().what;
    found.tensors = SafetensorsFile(cat(dir, "/", adapter_weights_name)).entries();
    for (const auto& [name, entry] : found.tensors) {
        const std::string module = module_of(name, lora_a);
        if (module.empty() || entry.shape.size() != 2) continue;
        found.ranks[module] = entry.shape[0];
        const auto linear = linear_of_module(name_of_files(model, module));
        if (linear) found.linears.insert(*linear);
    }
    return found;
}

void add_limited(Texts& texts, const Texts& more) {
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i < std::min(most, more.size()); ++i) texts.push_back(more[i]);
    if (more.size() > most) texts.push_back(cat("and ", more.size() - most, " more like these"));
}

bool has_shape(const Export& of, const std::string& module, const char* suffix,
               const std::vector<std::int64_t>& wanted) {
    const auto found = of.tensors.find(cat("base_model.model.", module, ".", suffix));
    return found != of.tensors.end() && found->second.shape == wanted;
}

/// LoRA of PEFT on the two tensors that all experts of a layer are in transformers 5: "X.experts"
/// and, of the one that it wraps first, "X.experts.base_layer". A and B of all experts are one
/// behind another.
bool is_on_tensors_of_experts(const Export& of, const std::string& module, const ModelSpec& model) {
    const ExpertSpec* experts = model.experts();
    if (experts == nullptr) return false;
    constexpr std::string_view inner = ".base_layer";
    std::string block = name_of_files(model, module);
    if (block.ends_with(inner)) block.resize(block.size() - inner.size());
    const std::int64_t layer = layer_in_name(block);
    if (layer < 0 || layer >= model.layers) return false;
    if (block != cat("model.layers.", layer, ".mlp.experts")) return false;
    const std::int64_t rank = of.ranks.at(module);
    const auto is_of = [&](std::int64_t in, std::int64_t out) {
        return has_shape(of, module, lora_a, {rank, in}) &&
               has_shape(of, module, lora_b, {out, rank});
    };
    const std::int64_t hidden = model.hidden_size;
    const std::int64_t size = experts->size;
    return rank % experts->count == 0 && (is_of(hidden, 2 * size) || is_of(size, hidden));
}

/// A or B has the blocks of use_bdlora alone, which names the modules of either.
bool is_block_diagonal(const Export& of, const std::string& module, LinearShape shape) {
    const Json& config = of.get("use_bdlora");
    if (!config.is_object() || !config.contains("nblocks")) return false;
    if (!config["nblocks"].is_number_integer()) return false;
    const auto blocks = config["nblocks"].get<std::int64_t>();
    const auto names_it = [&](const char* list) {
        if (!config.contains(list) || !is_list_of_texts(config[list])) return false;
        return std::any_of(config[list].begin(), config[list].end(), [&](const Json& name) {
            return is_name_end(module, name.get<std::string>());
        });
    };
    const std::int64_t rank = of.ranks.at(module);
    const bool in_a = names_it("target_modules_bd_a");
    const bool in_b = !in_a && names_it("target_modules_bd_b");
    if (blocks < 1 || shape.in % blocks != 0 || rank % blocks != 0) return false;
    return has_shape(of, module, lora_a, {rank, in_a ? shape.in / blocks : shape.in}) &&
           has_shape(of, module, lora_b, {shape.out, in_b ? rank / blocks : rank});
}

/// A linear's weight is what PEFT has LoRA on as if target_modules named the linear.
bool is_target_parameter(const Export& of, const std::string& module, const ModelSpec& model) {
    const Json& names = of.get("target_parameters");
    return is_list_of_texts(names) &&
           std::any_of(names.begin(), names.end(), [&](const Json& name) {
               return is_name_end(name_of_files(model, module) + ".weight",
                                  name.get<std::string>());
           });
}

/// What adapter_config.json says of a module that tensors are there for.
void compare_rank(const Export& of, const std::string& module, Linear linear, Loader loader,
                  const ModelSpec& model, Texts& faults) {
    // A regular expression is for names with the other parts of the model.
    if (!of.job || (!model.wrapper.empty() && of.get("target_modules").is_string())) return;
    const bool outer = is_outer(linear);
    const std::int64_t rank = of.ranks.at(module);
    const int said =
        of.job->rank(outer ? outer_layer(model, linear) : layer_in_name(module), linear);
    // ensure_weight_tying takes the head out of target_modules and gives it LoRA all the same.
    const bool tied = linear == Linear::head && of.has("ensure_weight_tying");
    const bool by_weight = is_target_parameter(of, module, model);
    const bool beside = peft_converts_targets(model) && is_beside_experts(model, linear) &&
                        expert_in_name(module) == no_expert;
    if (beside && loader == Loader::peft && !by_weight) {
        faults.push_back(cat(module, " is not in target_parameters: PEFT takes ",
                             module_name(linear), " for that of experts, and would leave it out"));
    } else if (said == 0 && loader == Loader::peft && !tied && !by_weight) {
        faults.push_back(cat(module, " is none of target_modules: it would be left out"));
    } else if (said > 0 && said != rank) {
        faults.push_back(cat(module, " has rank ", rank, ", adapter_config.json says ", said));
    }
}

/// The same of LoRA on the embedding, of a model that is in no other.
Texts faults_of_embedding(const Export& of, const ModelSpec& model) {
    const std::string path = cat("base_model.model.", module_path(0, Linear::embedding));
    const auto a = of.tensors.find(path + ".lora_embedding_A");
    const auto b = of.tensors.find(path + ".lora_embedding_B");
    if (a == of.tensors.end() && b == of.tensors.end()) return {};
    if (!of.job) return {};
    const LinearShape shape = linear_shape(model, Linear::embedding);
    const int said = of.job->rank(outer_layer(model, Linear::embedding), Linear::embedding);
    if (said == 0) return {cat(module_path(0, Linear::embedding), " is none of target_modules")};
    const bool fits = a != of.tensors.end() && b != of.tensors.end() &&
                      a->second.shape == std::vector<std::int64_t>{said, shape.in} &&
                      b->second.shape == std::vector<std::int64_t>{shape.out, said};
    if (fits) return {};
    return {cat(module_path(0, Linear::embedding), " has no A [", said, ", ", shape.in, "] and B [",
                shape.out, ", ", said, "], as adapter_config.json and the base say")};
}

/// Names and shapes that the loader can do nothing with, as those of another base model.
Texts faults_of_tensors(const Export& of, Loader loader, const ModelSpec& model) {
    Texts faults;
    const bool wrapped = !model.wrapper.empty();
    for (const auto& [module, rank] : of.ranks) {
        const std::string text = name_of_files(model, module);
        const bool spelled = !wrapped || name_in_files(model, text) == module;
        const std::optional<Linear> linear = linear_of(text, model);
        if (!linear && is_on_tensors_of_experts(of, module, model)) {
            if (loader == Loader::peft) continue;
            faults.push_back(cat(module, " is LoRA on the tensors of all experts"));
            continue;
        }
        if (!linear || !spelled) {
            faults.push_back(cat(module, " is no module of the base (",
                                 wrapped ? model.wrapper : model.family,
                                 "): it would be left out in silence"));
            continue;
        }
        const LinearShape shape = target_of(model, layer_in_name(text), *linear).shape;
        const bool blocks = loader == Loader::peft && of.get("use_bdlora").is_object();
        const bool fits = blocks ? is_block_diagonal(of, module, shape)
                                 : has_shape(of, module, lora_a, {rank, shape.in}) &&
                                       has_shape(of, module, lora_b, {shape.out, rank});
        if (!fits) {
            faults.push_back(cat(module, " has no A [", rank, ", ", shape.in, "] and B [",
                                 shape.out, ", ", rank, "], which the base needs"));
        }
        if (!wrapped) compare_rank(of, module, *linear, loader, model, faults);
    }
    const bool has_a = std::any_of(of.tensors.begin(), of.tensors.end(), [](const auto& tensor) {
        return tensor.first.find(".lora_A.") != std::string::npos ||
               tensor.first.ends_with(".lora_embedding_A");
    });
    if (of.is_lora() && !has_a) faults.emplace_back("it has no lora_A tensors");
    const Texts embedding = faults_of_embedding(of, model);
    faults.insert(faults.end(), embedding.begin(), embedding.end());
    return faults;
}

/// The base's own, which PEFT writes beside LoRA on the head or the embedding.
bool is_tensor_of_base(const std::string& name) {
    return name.ends_with("lm_head.base_layer.weight") ||
           name.ends_with(".embed_tokens.base_layer.weight");
}

Texts other_tensors(const Export& of) {
    Texts others;
    for (const auto& [name, entry] : of.tensors) {
        if (!module_of(name, lora_a).empty() || !module_of(name, lora_b).empty()) continue;
        if (is_tensor_of_base(name)) continue;
        others.push_back(cat("tensor ", name, " is neither lora_A nor lora_B"));
    }
    return others;
}

/// Of adapter_config.json, for programs that read it: what they do not do as it was trained.
void judge_variants(const Export& of, Loader loader, LoaderResult& result) {
    for (const ConfigVariant& variant : of.variants) {
        const std::string text = of.config.text(variant);
        if (!variant.loads_in(loader)) result.obstacles.push_back(text);
        if (!variant.known) result.advice.push_back(text + "; it is read past");
    }
}

/// The rules that vLLM and SGLang share.
Texts missing_keys(const Export& of) {
    Texts missing;
    for (const char* key : {"r", "lora_alpha", "target_modules"}) {
        if (of.get(key).is_null()) missing.push_back(cat("adapter_config.json has no ", key));
    }
    return missing;
}

/// Scales that differ from lora_alpha of adapter_config.json over each tensor's own rank.
Texts other_scales(const Export& of) {
    Texts texts;
    if (of.get("use_rslora") == true) {
        texts.emplace_back("use_rslora: it divides lora_alpha by the rank all the same");
    }
    if (of.has("alpha_pattern")) {
        texts.emplace_back("alpha_pattern: it has one lora_alpha for all modules");
    }
    return texts;
}

bool has_lora_in_experts(const Export& of) {
    return std::any_of(of.ranks.begin(), of.ranks.end(), [](const auto& module) {
        return expert_in_name(module.first) != no_expert;
    });
}

bool is_on_all_of_experts(const Export& of) {
    return of.linears.contains(Linear::gate) && of.linears.contains(Linear::up) &&
           of.linears.contains(Linear::down);
}

/// PEFT makes of them LoRA on transformers 5's two tensors, in which gate and up are one.
void judge_experts(const Export& of, const ModelSpec& model, LoaderResult& result) {
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

/// The base's own head or embedding, which PEFT loads into it.
bool is_outer_weight(const std::string& name) {
    return name == cat("base_model.model.", head_name) ||
           name == cat("base_model.model.", embedding_name);
}

/// Tensors that PEFT has no place for in plain LoRA.
Texts left_out(const Export& of) {
    if (!of.is_lora() || !of.variants.empty()) return {};
    Texts texts;
    for (const auto& [name, entry] : of.tensors) {
        const bool known = !module_of(name, lora_a).empty() || !module_of(name, lora_b).empty() ||
                           name.find(".lora_embedding_") != std::string::npos ||
                           is_tensor_of_base(name) || is_outer_weight(name);
        if (!known) texts.push_back(cat("tensor ", name, " would be left out"));
    }
    return texts;
}

/// Keys that LoraConfig does not take together.
Texts refused_configs(const Export& of) {
    Texts texts;
    const bool layers = !of.get("layers_to_transform").is_null();
    if (of.get("target_modules").is_string() && (layers || of.has("layers_pattern"))) {
        texts.emplace_back(
            "target_modules is a text, beside layers_to_transform or layers_pattern");
    }
    if (of.has("layers_pattern") && !layers) {
        texts.emplace_back("layers_pattern is there without layers_to_transform");
    }
    if (of.get("init_lora_weights") == "loftq" && !of.has("loftq_config")) {
        texts.emplace_back("init_lora_weights is \"loftq\" without loftq_config");
    }
    return texts;
}

LoaderResult peft(const Export& of, const ModelSpec& model) {
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
    add_limited(result.obstacles, left_out(of));
    if (has_lora_in_experts(of)) judge_experts(of, model, result);
    if (result.obstacles.empty()) result.unknown = of.unreadable;
    return result;
}

/// Of what stands beside the linears of layers.
Texts vllm_embeddings(const Export& of, const ModelSpec& model) {
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
LoaderResult judged(const char* name, const Export& of, Loader loader, const ModelSpec& model) {
    LoaderResult result{name, {}, {}, {}};
    if (!of.is_lora()) result.obstacles.emplace_back("it reads peft_type LORA alone");
    judge_variants(of, loader, result);
    add_limited(result.obstacles, faults_of_tensors(of, loader, model));
    if (model.delta_nets() != nullptr) result.unknown = "nobody tried it with gated delta nets";
    return result;
}

/// Of gated delta nets vLLM 0.33 packs in_proj_qkv and in_proj_z into one linear of four parts, the
/// first of which it finds by in_proj_qkv.
Texts faults_of_delta_nets(const Export& of) {
    Texts texts;
    for (const auto& [module, rank] : of.ranks) {
        constexpr std::string_view end = "in_proj_z";
        if (!module.ends_with(end)) continue;
        const std::string block = module.substr(0, module.size() - end.size());
        if (of.ranks.count(block + "in_proj_qkv") > 0) continue;
        texts.push_back(cat(module, " has LoRA and in_proj_qkv, which it packs with it, has none"));
    }
    return texts;
}

LoaderResult vllm(const Export& of, const ModelSpec& model) {
    LoaderResult result = judged("vLLM", of, Loader::vllm, model);
    Texts& no = result.obstacles;
    if (model.delta_nets() != nullptr) {
        result.unknown.clear();
        add_limited(no, faults_of_delta_nets(of));
        result.advice.emplace_back("gated delta nets were tried with the files of vLLM 0.33");
    }
    add_limited(no, missing_keys(of));
    if (of.is_lora()) add_limited(no, vllm_embeddings(of, model));
    if (has_lora_in_experts(of) && !is_on_all_of_experts(of)) {
        no.emplace_back(
            "LoRA in experts is not on gate_proj, up_proj and down_proj, which it packs "
            "together");
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
            "versions before rank_pattern and alpha_pattern were read ignore them in silence");
    }
    return result;
}

LoaderResult sglang(const Export& of, const ModelSpec& model) {
    LoaderResult result = judged("SGLang", of, Loader::sglang, model);
    add_limited(result.obstacles, missing_keys(of));
    if (of.is_lora()) add_limited(result.obstacles, other_tensors(of));
    const bool key = of.linears.contains(Linear::k) || of.linears.contains(Linear::v);
    if (key && !of.linears.contains(Linear::q)) {
        result.advice.emplace_back(
            "versions before pull request 28199 break with k_proj or v_proj and no q_proj");
    }
    return result;
}

LoaderResult llama_cpp(const Export& of, const ModelSpec& model) {
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
    const Export found = read_export(dir, model);
    return {peft(found, model), vllm(found, model), sglang(found, model), llama_cpp(found, model)};
}

}  // namespace loratrain
