#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "config/model_spec.h"
#include "io/json_reader.h"
#include "io/json_text.h"
#include "io/weights/hf_rope.h"

namespace loratrain {

/// Which layers have sliding_window where layer_types does not say; with on_last_layers and
/// on_layers_without_rope only if use_sliding_window is true.
enum class SlidingWindows : std::uint8_t {
    never,
    on_every_layer,
    on_last_layers,
    on_layers_without_rope,
    between_full_layers,  ///< but on every sliding_interval-th
};

/// What the family's class of transformers has where config.json says nothing.
struct ClassSizes {
    std::int64_t vocabulary = 0;
    std::int64_t hidden = 0;
    std::int64_t intermediate = 0;  ///< 0: the class has none, all layers have experts
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t pad_token = -1;  ///< -1: none
};

/// Dropout that transformers applies to the base in training mode.
struct Dropout {
    const char* key = "";  ///< "" = none
    double missing = 0.0;  ///< where config.json does not say
};

/// Which layers of a family with experts have them; the others have a dense MLP of
/// intermediate_size.
enum class ExpertLayers : std::uint8_t {
    every,
    by_steps,      ///< all but mlp_only_layers, of every decoder_sparse_step-th
    behind_first,  ///< all but the first first_k_dense_replace
    listed,        ///< as mlp_layer_types says; where it is missing, all but the first
};

/// Experts of a family (hf_layers.h).
struct ExpertFamily {
    /// Where config.json says nothing. Of no count: no experts; of no size: as intermediate_size.
    ExpertSpec missing = {};
    bool reads_normalised = true;  ///< key norm_topk_prob
    bool reads_groups = false;     ///< keys n_group, topk_group and routed_scaling_factor
    /// Columns of a shared expert, or experts of the others' size that it is; "" = none.
    const char* shared_size_key = "";
    const char* shared_count_key = "";
    /// PEFT 0.21 takes gate_proj, up_proj and down_proj of target_modules for those of experts and
    /// makes target_parameters of them. Else exports have both.
    bool peft_converts = true;
    ExpertLayers layers = ExpertLayers::every;
    std::int64_t first_dense = 1;  ///< first_k_dense_replace where config.json has none

    bool exists() const { return missing.count > 0; }
};

/// Layers that predict further tokens, which transformers leaves out.
struct FurtherLayers {
    const char* count_key = "";  ///< "" = the family has none
    const char* prefix = "";     ///< of their tensors; "" = they are numbered behind the others
};

/// What config.json leaves to the family.
struct Family {
    const char* name = "";
    const char* architecture = "";
    ClassSizes sizes = {};
    std::int64_t head_dim = 0;            ///< where config.json has none; 0 = hidden / heads
    std::int64_t kv_heads = 0;            ///< where config.json has none; 0 = heads
    const char* attention_bias_key = "";  ///< that decides on q, k, v, o; "" = none
    bool attention_bias = false;          ///< where config.json has no such key
    /// Key attention_bias decides on q, k, v (true where missing), attention_out_bias on o.
    bool reads_out_bias = false;
    const char* qkv_bias_key = "";  ///< that decides on q, k, v alone; "" = none
    bool qkv_bias = true;           ///< where config.json has no such key
    bool reads_qk_norm = false;     ///< key use_qk_norm decides on norms of q and k
    const char* mlp_bias_key = "";  ///< "" = none
    /// embedding_multiplier, attention_multiplier, residual_multiplier and logits_scaling, 1 where
    /// missing.
    bool reads_multipliers = false;
    bool has_layers_without_rope = false;
    bool rotates_windows_alone = false;  ///< where there is a sliding_window
    bool tied = false;                   ///< tie_word_embeddings where config.json has none
    /// What the family's layers have without a key of config.json: biases, norms of q and k, ... Of
    /// a latent also head_dim, as config.json may not say it.
    AttentionSpec attention = {};
    Norms norms = {};
    DenseSpec mlp = {};
    /// Mixer of the layers that are not listed or counted as full_attention; its sizes where
    /// config.json says nothing. Of no heads: the family has none.
    DeltaNetSpec delta_net = {};
    RopeDefaults rope = {};
    SlidingWindows sliding_windows = SlidingWindows::never;
    std::int64_t sliding_window = 4096;     ///< where config.json has none; 0 = no sliding window
    std::int64_t first_sliding_layer = 28;  ///< max_window_layers where config.json has none
    std::int64_t sliding_interval = 0;
    const char* sliding_interval_key = "";  ///< that says it; "" = none
    double eps = 1e-6;                      ///< rms_norm_eps where config.json has none
    bool norm_plus_one = false;
    const char* activation_key = "hidden_act";
    const char* activation = "silu";  ///< where config.json has none
    /// Keys query_pre_attn_scalar (where missing so much) and the soft caps; embeddings times
    /// sqrt(hidden_size); 0: a family without.
    std::int64_t query_pre_attn_scalar = 0;
    /// Where config.json has no key; 0 = none. A family without one has the key too (gemma3), and
    /// transformers does not use it there.
    double attention_soft_cap = 0.0;
    double logits_soft_cap = 0.0;
    Dropout attention_dropout = {"attention_dropout", 0.0};
    Dropout residual_dropout = {};
    ExpertFamily experts = {};
    FurtherLayers further_layers = {};
    /// vLLM's model of the family names embedding_modules: it takes LoRA on head and embedding.
    /// Those around a text model do not.
    bool vllm_embeddings = false;

    bool has_delta_nets() const { return delta_net.value_heads > 0; }
};

/// The families that can be trained.
std::span<const Family> model_families();
/// ExpertFamily::peft_converts of the model's family.
bool peft_converts_targets(const ModelSpec& model);
/// That of model_type; null with a problem where it is none of them.
const Family* find_family(JsonReader& config);
/// Of the name; null where there is none.
const Family* family_named(const std::string& name);

/// A size, its key, and what it is where config.json has none.
struct FamilySize {
    const char* key;
    std::int64_t ClassSizes::*field;
    std::int64_t missing;
};
std::array<FamilySize, 5> family_sizes(const Family& family);

/// Which config of a wrapper says tie_word_embeddings.
enum class TieKey : std::uint8_t {
    outer_first,  ///< the wrapper's, else text_config's
    outer_alone,
    either,  ///< tied where one of them says true
};

/// Configs around a text model, which is their text_config.
struct Wrapper {
    const char* name = "";
    const char* architecture = "";
    const char* inner = "";  ///< model_type of a text_config that does not say
    bool tied = false;       ///< where no config says
    TieKey tie_key = TieKey::outer_first;
    bool flat = false;  ///< without text_config, the keys of the text model stand in the wrapper's
    /// Modules beside the text model, as exported adapters exclude them.
    const char* other_parts = ".*(vision_tower|multi_modal_projector).*";
};

/// All kinds of such configs (hf_wrapper.cpp, with what follows here).
std::span<const Wrapper> model_wrappers();
/// Of ModelSpec::wrapper; null where there is none.
const Wrapper* wrapper_named(const std::string& name);

/// The text model's part of a config.json that describes a larger model.

/// The wrapper (a multimodal model around a text model) of the config.json's model_type; null:
/// none.
const Wrapper* wrapper_of(const Json& document);

/// Config of the wrapper's text model: text_config, or the whole document of a flat wrapper. Adds
/// what the config around it says of the text model: tied embeddings (Wrapper::tie_key) and
/// quantization_config. Throws InputError at `where` if there is no text_config.
Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where);

/// Config of the text model: text_config() of a wrapper, otherwise the document.
Json text_document(const Json& document, const std::string& where);

}  // namespace loratrain
