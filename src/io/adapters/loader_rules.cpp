#include "io/adapters/loader_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr const char* lora_a = "lora_A.weight";
constexpr const char* lora_b = "lora_B.weight";
constexpr std::array<std::int64_t, 9> vllm_ranks{1, 8, 16, 32, 64, 128, 256, 320, 512};
constexpr std::int64_t vllm_default_rank = 16;
/// Whose model in vLLM names embedding_modules.
constexpr std::array<std::string_view, 5> vllm_embedding_families{"llama", "qwen3", "qwen3_moe",
                                                                  "granite", "apertus"};
/// What only says how A and B began; other texts change the base.
constexpr std::array<std::string_view, 5> vllm_starts{"gaussian", "eva", "orthogonal", "mica",
                                                      "lora_ga"};

using Texts = std::vector<std::string>;

bool is_off(const Json& value) {
    return value.is_null() || value == false || value == "none" ||
           (value.is_structured() && value.empty());
}

/// An adapter as its files tell it.
struct Export {
    Json config;
    std::map<std::string, SafetensorsEntry> tensors;
    std::map<std::string, std::int64_t> ranks;  ///< of modules with lora_A, by name in the base
    std::set<std::string> linears;              ///< "q_proj", ... that have LoRA

    const Json& get(const char* key) const {
        static const Json none;
        const auto found = config.find(key);
        return found == config.end() ? none : *found;
    }
    bool has(const char* key) const { return !is_off(get(key)); }
    bool is_lora() const { return get("peft_type") == "LORA"; }
    std::int64_t largest_rank() const {
        std::int64_t largest = 0;
        for (const auto& [module, rank] : ranks) largest = std::max(largest, rank);
        return largest;
    }
};

/// The linear that the tensor belongs to, of a base model's names; nothing where there is none.
std::optional<Linear> linear_of(const std::string& module, const ModelSpec& model) {
    for (int i = 0; i <= linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const std::int64_t layer = linear == Linear::head ? 0 : layer_in_name(module);
        if (layer < 0 || layer >= model.layers) continue;
        if (!has_target(model, linear)) continue;
        const std::int32_t expert = expert_in_name(module);
        const bool fits = is_in_experts(model, linear) ? expert >= 0 && expert < model.experts.count
                                                       : expert == no_expert;
        if (fits && module_path(layer, linear, expert) == module) return linear;
    }
    return std::nullopt;
}

/// "model.layers.0.mlp.up_proj" of a tensor's name and what is behind it; "" = another name.
std::string module_of(const std::string& name, const std::string& suffix) {
    constexpr std::string_view base = "base_model.model.";
    if (!name.starts_with(base) || !name.ends_with("." + suffix)) return "";
    return name.substr(base.size(), name.size() - base.size() - suffix.size() - 1);
}

Export read_export(const std::string& dir) {
    const std::string path = dir + "/adapter_config.json";
    Export found;
    found.config = parse_json(read_text(path), path);
    if (!found.config.is_object()) {
        throw InputError(path, "holds " + json_kind(found.config) + ", must be an object",
                         "give a directory that PEFT or loratrain has written");
    }
    found.tensors = SafetensorsFile(cat(dir, "/", adapter_weights_name)).entries();
    for (const auto& [name, entry] : found.tensors) {
        const std::string module = module_of(name, lora_a);
        if (module.empty() || entry.shape.size() != 2) continue;
        found.ranks[module] = entry.shape[0];
        found.linears.insert(module.substr(module.rfind('.') + 1));
    }
    return found;
}

void add_limited(Texts& texts, const Texts& more) {
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i < std::min(most, more.size()); ++i) texts.push_back(more[i]);
    if (more.size() > most) texts.push_back(cat("and ", more.size() - most, " more like these"));
}

/// What no program can do anything with: names and shapes of another base model.
Texts faults_of_tensors(const Export& of, const ModelSpec& model) {
    Texts faults;
    for (const auto& [module, rank] : of.ranks) {
        const bool wrapped = !model.wrapper.empty();
        const std::string text = wrapped ? name_in_text_model(module) : module;
        const bool spelled = !wrapped || module_path_in_wrapper(text) == module;
        const std::optional<Linear> linear = linear_of(text, model);
        if (!linear || !spelled) {
            faults.push_back(cat(module, " is no module of the base (",
                                 wrapped ? model.wrapper : model.family,
                                 "): it would be left out in silence"));
            continue;
        }
        const LinearShape shape = target_shape(model, *linear);
        const auto fits = [&](const char* suffix, const std::vector<std::int64_t>& wanted) {
            const auto found = of.tensors.find(cat("base_model.model.", module, ".", suffix));
            return found != of.tensors.end() && found->second.shape == wanted;
        };
        if (!fits(lora_a, {rank, shape.in}) || !fits(lora_b, {shape.out, rank})) {
            faults.push_back(cat(module, " has no A [", rank, ", ", shape.in, "] and B [",
                                 shape.out, ", ", rank, "], which the base needs"));
        }
    }
    const bool has_a = std::any_of(of.tensors.begin(), of.tensors.end(), [](const auto& tensor) {
        return tensor.first.find(".lora_A.") != std::string::npos ||
               tensor.first.ends_with(".lora_embedding_A");
    });
    if (of.is_lora() && !has_a) faults.emplace_back("it has no lora_A tensors");
    return faults;
}

Texts other_tensors(const Export& of) {
    Texts others;
    for (const auto& [name, entry] : of.tensors) {
        if (!module_of(name, lora_a).empty() || !module_of(name, lora_b).empty()) continue;
        others.push_back(cat("tensor ", name, " is neither lora_A nor lora_B"));
    }
    return others;
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
    return of.linears.contains("gate_proj") && of.linears.contains("up_proj") &&
           of.linears.contains("down_proj");
}

/// PEFT makes of them LoRA on transformers 5's two tensors, in which gate and up are one.
void judge_experts(const Export& of, LoaderVerdict& verdict) {
    const bool gate = of.linears.contains("gate_proj");
    if (!is_on_all_of_experts(of) && (gate || of.linears.contains("up_proj"))) {
        verdict.obstacles.emplace_back(
            "LoRA in experts is neither on gate_proj, up_proj and down_proj nor on down_proj "
            "alone");
    }
    if (gate && of.get("use_rslora") == true) {
        verdict.obstacles.emplace_back(
            "use_rslora: it would scale gate_proj and up_proj of experts by sqrt(2) too much");
    }
    const Json& dropout = of.get("lora_dropout");
    if (dropout.is_number() && dropout.get<double>() > 0.0) {
        verdict.obstacles.emplace_back(
            "lora_dropout is not 0, which LoRA in experts does not take");
    }
    verdict.advice.emplace_back("LoRA in experts was tried with PEFT 0.21 and transformers 5.24");
}

LoaderVerdict peft(const Export& of, const Texts& faults) {
    LoaderVerdict verdict{"PEFT", {}, {}};
    add_limited(verdict.obstacles, faults);
    if (has_lora_in_experts(of)) judge_experts(of, verdict);
    const Json& type = of.get("peft_type");
    if (type != "LORA" && type != "VERA") {
        verdict.obstacles.push_back("peft_type is " + json_text(type) + ", not LORA or VERA");
    }
    return verdict;
}

/// Of what stands beside the linears of layers.
Texts vllm_embeddings(const Export& of, const ModelSpec& model) {
    const bool takes = std::find(vllm_embedding_families.begin(), vllm_embedding_families.end(),
                                 model.family) != vllm_embedding_families.end();
    Texts texts;
    if (!takes && of.linears.contains("lm_head")) {
        texts.push_back(cat("its model of ", model.family, " has no LoRA on lm_head"));
    }
    for (const std::string& other : other_tensors(of)) {
        const bool embedding = other.find(".lora_embedding_") != std::string::npos;
        if (!takes || !embedding) texts.push_back(other);
    }
    return texts;
}

LoaderVerdict vllm(const Export& of, const Texts& faults, const ModelSpec& model) {
    LoaderVerdict verdict{"vLLM", {}, {}};
    Texts& no = verdict.obstacles;
    if (!of.is_lora()) no.emplace_back("it reads peft_type LORA alone");
    add_limited(no, faults);
    add_limited(no, missing_keys(of));
    for (const char* key : {"modules_to_save", "use_dora", "lora_bias", "bias"}) {
        if (of.has(key)) no.push_back(cat(key, " is ", json_text(of.get(key))));
    }
    const Json& init = of.get("init_lora_weights");
    const bool changes_base =
        init.is_string() && std::find(vllm_starts.begin(), vllm_starts.end(),
                                      init.get<std::string>()) == vllm_starts.end();
    if (changes_base) {
        no.push_back(cat("init_lora_weights is ", json_text(init), ", which changes the base"));
    }
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
        verdict.advice.push_back(cat("start it with --max-lora-rank ", *fitting));
    }
    if (of.has("rank_pattern") || of.has("alpha_pattern")) {
        verdict.advice.emplace_back(
            "versions before rank_pattern and alpha_pattern were read ignore them in silence");
    }
    return verdict;
}

LoaderVerdict sglang(const Export& of, const Texts& faults) {
    LoaderVerdict verdict{"SGLang", {}, {}};
    if (!of.is_lora()) verdict.obstacles.emplace_back("it reads peft_type LORA alone");
    add_limited(verdict.obstacles, faults);
    add_limited(verdict.obstacles, missing_keys(of));
    if (of.is_lora()) add_limited(verdict.obstacles, other_tensors(of));
    const bool key = of.linears.contains("k_proj") || of.linears.contains("v_proj");
    if (key && !of.linears.contains("q_proj")) {
        verdict.advice.emplace_back(
            "versions before pull request 28199 break where k_proj or v_proj has LoRA without "
            "q_proj");
    }
    return verdict;
}

LoaderVerdict llama_cpp(const Export& of, const Texts& faults, const ModelSpec& model) {
    LoaderVerdict verdict{"llama.cpp", {}, {}};
    if (!of.is_lora()) verdict.obstacles.emplace_back("it reads peft_type LORA alone");
    add_limited(verdict.obstacles, faults);
    add_limited(verdict.obstacles, other_scales(of));
    if (of.is_lora()) add_limited(verdict.obstacles, other_tensors(of));
    if (model.tie_word_embeddings && of.linears.contains("lm_head")) {
        verdict.obstacles.emplace_back("LoRA on lm_head of a model with tied embeddings");
    }
    verdict.advice.emplace_back(
        "convert_lora_to_gguf.py needs the base's config.json: give its folder as --base");
    return verdict;
}

}  // namespace

std::vector<LoaderVerdict> check_loaders(const std::string& dir, const ModelSpec& model) {
    const Export found = read_export(dir);
    const Texts faults = faults_of_tensors(found, model);
    return {peft(found, faults), vllm(found, faults, model), sglang(found, faults),
            llama_cpp(found, faults, model)};
}

}  // namespace loratrain
