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

/// What a name of the base model stands for.
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

/// Of a tensor in the files of a model around a text model (ModelSpec::wrapper), its name in the
/// text model: "model.layers.0..." of "language_model.model.layers.0...", of
/// "model.language_model.layers.0..." and of itself. "" = no tensor of the text model.
std::string name_in_text_model(const std::string& name);

/// What files of Hugging Face call a module or tensor of the model, or words at the end of such a
/// name, where they call it otherwise than base.h5: "model.language_model.layers.3.mlp.up_proj" of
/// "model.layers.3.mlp.up_proj" in a wrapper, "w1" of "gate_proj" in mixtral.
bool has_other_names(const ModelSpec& model);
std::string name_in_files(const ModelSpec& model, const std::string& name);
/// And back, of any spelling; "" = no tensor of the text model.
std::string name_of_files(const ModelSpec& model, const std::string& name);
std::string name_of_files(ExpertNames names, const std::string& name);
/// For the tensors of an adapter, behind "base_model.model.".
std::string peft_name_in_files(const ModelSpec& model, const std::string& name);
std::string peft_name_of_files(const ModelSpec& model, const std::string& name);

/// Tensors of all experts of a layer in transformers 5, as target_parameters of PEFT names them,
/// and the key of rank_pattern and alpha_pattern for the first.
inline constexpr const char* tensor_of_experts_gate_up = "mlp.experts.gate_up_proj";
inline constexpr const char* tensor_of_experts_down = "mlp.experts.down_proj";
inline constexpr const char* pattern_of_gate_up = ".*\\.gate_up_proj";

/// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight", and what tensors are called on
/// an embedding (on_linear). Of an expert "...layers.3.mlp.experts.17.up_proj.lora_A.weight".
std::string peft_tensor_name(std::int64_t layer, Linear linear, const FormTensor& tensor,
                             std::int32_t expert = no_expert);

}  // namespace loratrain
