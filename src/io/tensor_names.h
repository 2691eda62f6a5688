#pragma once

#include <cstdint>
#include <string>

#include "config/adapter_form.h"
#include "config/model_spec.h"

namespace loratrain {

/// Names of tensors in files: those of the base model as Hugging Face transformers spells them,
/// those of adapters as PEFT does. The words in them that job files and planning know too are
/// config's: module_name(), module_path(), layer_tensor_name(), FormTensor::peft_suffix.

inline constexpr const char* embedding_name = "model.embed_tokens.weight";
inline constexpr const char* final_norm_name = "model.norm.weight";
inline constexpr const char* head_name = "lm_head.weight";

/// "model.layers.3.mlp.act_fn.beta": a constant of Activation::xielu, which transformers stores
/// beside its weights.
std::string activation_constant_name(std::int64_t layer, const char* constant);

/// "model.layers.3.mlp.experts.17.gate_proj.weight" of gate, up or down.
std::string expert_weight_name(std::int64_t layer, std::int64_t expert, Linear linear);

std::string weight_name(std::int64_t layer, Linear linear);
std::string bias_name(std::int64_t layer, Linear linear);

/// Whether a name of the base model is that of a norm, a bias or the weight of a linear.
bool is_norm_name(const std::string& name);
bool is_bias_name(const std::string& name);
bool is_name_of(const std::string& name, Linear linear);
/// The weight of any of a layer's linears.
bool is_linear_weight(const std::string& name);
/// The weight of a convolution, which Hugging Face's files have as [C, 1, K].
bool is_convolution_name(const std::string& name);
/// Tables and constants that versions of transformers store beside the weights.
bool is_stored_table_name(const std::string& name);

/// 3 of "...model.layers.3.self_attn..."; -1 = the name has no layer.
std::int64_t layer_in_name(const std::string& name);

/// 17 of "...mlp.experts.17.up_proj..."; no_expert = the name has none.
std::int32_t expert_in_name(const std::string& name);

/// The name in the text model of a tensor in files of a model that wraps it (ModelSpec::wrapper):
/// "model.layers.0..." of "language_model.model.layers.0...", of "model.language_model.layers.0..."
/// and of itself. "" = no tensor of the text model.
std::string name_in_text_model(const std::string& name);

/// The name of a module or tensor in Hugging Face's files, of its name in base.h5; also for the
/// last words of a name. They differ in wrappers ("model.language_model.layers.3.mlp.up_proj" of
/// "model.layers.3.mlp.up_proj") and in mixtral ("w1" of "gate_proj"). has_other_names(): whether
/// any name differs.
bool has_other_names(const ModelSpec& model);
std::string name_in_files(const ModelSpec& model, const std::string& name);
/// The inverse: the name in base.h5 of a name in files, in any spelling; "" = no tensor of the text
/// model.
std::string name_of_files(const ModelSpec& model, const std::string& name);
std::string name_of_files(ExpertNames names, const std::string& name);
/// The same two for names of an adapter's tensors, without their "base_model.model.".
std::string peft_name_in_files(const ModelSpec& model, const std::string& name);
std::string peft_name_of_files(const ModelSpec& model, const std::string& name);

/// Tensors of all experts of a layer in transformers 5, as target_parameters of PEFT names them,
/// and the key of rank_pattern and alpha_pattern for the first.
inline constexpr const char* tensor_of_experts_gate_up = "mlp.experts.gate_up_proj";
inline constexpr const char* tensor_of_experts_down = "mlp.experts.down_proj";
inline constexpr const char* pattern_of_gate_up = ".*\\.gate_up_proj";

/// Name of an adapter's tensor in PEFT's files:
/// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"; on the embedding as on_linear
/// has it; of an expert "...layers.3.mlp.experts.17.up_proj.lora_A.weight".
std::string peft_tensor_name(std::int64_t layer, Linear linear, const FormTensor& tensor,
                             std::int32_t expert = no_expert);

}  // namespace loratrain
