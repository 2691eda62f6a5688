#include "io/adapters/export_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/tensor.h"
#include "io/adapters/adapter_file.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

constexpr const char* lora_a = "lora_A.weight";
constexpr const char* lora_b = "lora_B.weight";
using Texts = std::vector<std::string>;

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

bool has_shape(const ExportFiles& of, const std::string& module, const char* suffix,
               const std::vector<std::int64_t>& wanted) {
    const auto found = of.tensors.find(cat("base_model.model.", module, ".", suffix));
    return found != of.tensors.end() && found->second.shape == wanted;
}

/// LoRA of PEFT on the two tensors that all experts of a layer are in transformers 5: "X.experts"
/// and, of the one that it wraps first, "X.experts.base_layer". A and B of all experts are one
/// behind another.
bool is_on_tensors_of_experts(const ExportFiles& of, const std::string& module,
                              const ModelSpec& model) {
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
bool is_block_diagonal(const ExportFiles& of, const std::string& module, LinearShape shape) {
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
bool is_target_parameter(const ExportFiles& of, const std::string& module, const ModelSpec& model) {
    const Json& names = of.get("target_parameters");
    return is_list_of_texts(names) &&
           std::any_of(names.begin(), names.end(), [&](const Json& name) {
               return is_name_end(name_of_files(model, module) + ".weight",
                                  name.get<std::string>());
           });
}

/// What adapter_config.json says of a module that tensors are there for.
void compare_rank(const ExportFiles& of, const std::string& module, Linear linear, Loader loader,
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
        faults.push_back(cat(module, " is not among target_modules: it would be left out"));
    } else if (said > 0 && said != rank) {
        faults.push_back(cat(module, " has rank ", rank, ", adapter_config.json says ", said));
    }
}

/// The same of LoRA on the embedding, of a model that is in no other.
Texts faults_of_embedding(const ExportFiles& of, const ModelSpec& model) {
    const std::string path = cat("base_model.model.", module_path(0, Linear::embedding));
    const auto a = of.tensors.find(path + ".lora_embedding_A");
    const auto b = of.tensors.find(path + ".lora_embedding_B");
    if (a == of.tensors.end() && b == of.tensors.end()) return {};
    if (!of.job) return {};
    const LinearShape shape = linear_shape(model, Linear::embedding);
    const int said = of.job->rank(outer_layer(model, Linear::embedding), Linear::embedding);
    if (said == 0) return {cat(module_path(0, Linear::embedding), " is not among target_modules")};
    const bool fits = a != of.tensors.end() && b != of.tensors.end() &&
                      a->second.shape == std::vector<std::int64_t>{said, shape.in} &&
                      b->second.shape == std::vector<std::int64_t>{shape.out, said};
    if (fits) return {};
    return {cat(module_path(0, Linear::embedding), " has no A [", said, ", ", shape.in, "] and B [",
                shape.out, ", ", said, "], as adapter_config.json and the base say")};
}

using Shape = std::vector<std::int64_t>;

/// Of what forms have beside A and B: magnitudes of DoRA, vectors of VeRA.
Texts faults_of_vectors(const ExportFiles& of, const ModelSpec& model) {
    Texts faults;
    const auto check = [&](const FormTensor& tensor) {
        for (const auto& [name, entry] : of.tensors) {
            const std::string module = name_of_files(model, module_of(name, tensor.peft_suffix));
            const std::optional<Linear> linear = linear_of(module, model);
            if (!linear) continue;
            const std::int64_t layer =
                is_outer(*linear) ? outer_layer(model, *linear) : layer_in_name(module);
            const int rank = of.job ? of.job->rank(layer, *linear) : 0;
            const Shape wanted = tensor_shape(tensor, rank, target_of(model, layer, *linear).shape);
            if (rank == 0 || entry.shape == wanted) continue;
            faults.push_back(cat("tensor ", name, " has shape ", shape_text(entry.shape),
                                 ", the base and r want ", shape_text(wanted)));
        }
    };
    for (const AdapterForm& form : {dora_form(), vera_form(0.0)}) {
        for (const FormTensor& tensor : form.tensors) {
            if (tensor.axes.size() == 1) check(tensor);
        }
    }
    return faults;
}

/// Rows of tokens, as trainable_token_indices has them: a list for the embedding, or a list of each
/// module that is named.
Texts faults_of_token_rows(const ExportFiles& of, const ModelSpec& model) {
    const Json& said = of.get("trainable_token_indices");
    Json lists = said;
    if (said.is_array()) lists = {{module_name(Linear::embedding), said}};
    if (!of.has("trainable_token_indices") || !lists.is_object()) return {};
    Texts faults;
    for (const auto& [module, ids] : lists.items()) {
        const auto count = static_cast<std::int64_t>(ids.size());
        const std::string suffix = cat(".", module, ".", token_rows(count).peft_suffix);
        const Shape wanted{count, model.hidden_size};
        const auto found = std::ranges::find_if(
            of.tensors, [&](const auto& tensor) { return tensor.first.ends_with(suffix); });
        if (found == of.tensors.end() || found->second.shape != wanted) {
            faults.push_back(cat(
                module, " has no rows ", shape_text(wanted), " of trainable_token_indices",
                found == of.tensors.end() ? "" : cat(", but ", shape_text(found->second.shape))));
        }
        const auto beyond = std::ranges::find_if(ids, [&](const Json& id) {
            return !id.is_number_integer() || id.get<std::int64_t>() < 0 ||
                   id.get<std::int64_t>() >= model.vocab_size;
        });
        if (beyond == ids.end()) continue;
        faults.push_back(cat("trainable_token_indices has ", json_text(*beyond),
                             ", which is not one of the base's ", model.vocab_size, " tokens"));
    }
    return faults;
}

/// The base's own head and embedding, of a model that is in no other.
Texts faults_of_own_weights(const ExportFiles& of, const ModelSpec& model) {
    const Shape wanted{model.vocab_size, model.hidden_size};
    Texts faults;
    for (const OwnWeight& own : own_weights(model)) {
        const auto found = of.tensors.find(own.tensor);
        if (found == of.tensors.end() || found->second.shape == wanted) continue;
        faults.push_back(cat("tensor ", own.tensor, " has shape ", shape_text(found->second.shape),
                             ", that of the base is ", shape_text(wanted),
                             ": the embedding was resized"));
    }
    return faults;
}

/// The base's own, which PEFT writes beside LoRA on the head or the embedding, and beside rows of
/// tokens.
bool is_tensor_of_base(const std::string& name) {
    return name.ends_with("lm_head.base_layer.weight") ||
           name.ends_with(".embed_tokens.base_layer.weight") ||
           name.ends_with(".token_adapter.base_layer.weight");
}

/// The base's own head or embedding, which PEFT loads into it.
bool is_outer_weight(const std::string& name) {
    return name == cat("base_model.model.", head_name) ||
           name == cat("base_model.model.", embedding_name);
}

}  // namespace

ExportFiles read_export_files(const std::string& dir, const ModelSpec& model) {
    ExportFiles found{AdapterConfig(dir + "/adapter_config.json", model), {}, {}, {}, {}, {}, {}};
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

std::vector<std::string> faults_of_tensors(const ExportFiles& of, Loader loader,
                                           const ModelSpec& model) {
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
            faults.push_back(cat(module, " is not a module of the base (",
                                 wrapped ? model.wrapper : model.family,
                                 "): it would be left out without a message"));
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
    const auto add = [&](const Texts& more) {
        faults.insert(faults.end(), more.begin(), more.end());
    };
    add(faults_of_embedding(of, model));
    if (loader != Loader::peft) return faults;
    add(faults_of_vectors(of, model));
    add(faults_of_token_rows(of, model));
    add(faults_of_own_weights(of, model));
    return faults;
}

std::vector<std::string> other_tensors(const ExportFiles& of) {
    Texts others;
    for (const auto& [name, entry] : of.tensors) {
        if (!module_of(name, lora_a).empty() || !module_of(name, lora_b).empty()) continue;
        if (is_tensor_of_base(name)) continue;
        others.push_back(cat("tensor ", name, " is neither lora_A nor lora_B"));
    }
    return others;
}

std::vector<std::string> tensors_left_out(const ExportFiles& of) {
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

}  // namespace loratrain
