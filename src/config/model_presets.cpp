#include "config/model_presets.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "base/text.h"
#include "config/job_words.h"

namespace loratrain {

namespace {

struct Preset {
    const char* name;
    const char* family;
    std::int64_t vocab;
    std::int64_t hidden;
    std::int64_t intermediate;
    std::int64_t layers;
    std::int64_t heads;
    std::int64_t kv_heads;
    double theta;
    bool qkv_bias;
    bool tied;                  ///< tie_word_embeddings
    std::int64_t head_dim = 0;  ///< 0: hidden / heads
    bool qk_norm = false;
    ExpertSpec experts{};  ///< of no count: a dense MLP
    /// Mixer of three layers of four; the fourth's attention has output gates. Of no heads: none.
    DeltaNetSpec net{};
    void (*add_further)(ModelSpec&) = nullptr;  ///< null: nothing
};

/// Dense ones of Qwen3.5 and Qwen3.6.
constexpr Preset hybrid(const char* name, std::int64_t hidden, std::int64_t intermediate,
                        std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                        std::int64_t value_heads, bool tied) {
    return {.name = name,
            .family = "qwen3_5_text",
            .vocab = 248320,
            .hidden = hidden,
            .intermediate = intermediate,
            .layers = layers,
            .heads = heads,
            .kv_heads = kv_heads,
            .theta = 10000000.0,
            .qkv_bias = false,
            .tied = tied,
            .head_dim = 256,
            .qk_norm = true,
            .net = {16, value_heads, 128, 128}};
}

/// Those whose MLPs are experts.
constexpr Preset hybrid_of_experts(const char* name, std::int64_t hidden, std::int64_t layers,
                                   std::int64_t heads, std::int64_t kv_heads,
                                   std::int64_t value_heads, const ExpertSpec& experts) {
    Preset preset = hybrid(name, hidden, 0, layers, heads, kv_heads, value_heads, false);
    preset.family = "qwen3_5_moe_text";
    preset.experts = experts;
    return preset;
}

/// Of gpt_oss: sinks, windows on every other layer, YaRN.
void add_sinks_and_windows(ModelSpec& model) {
    AttentionSpec& attention = model.attention();
    attention.o_bias = true;
    attention.sinks = true;
    RopeSpec& rope = *attention.rope;
    rope.type = RopeType::yarn;
    rope.factor = 32.0;
    rope.original_max_position = 4096;
    rope.truncate = false;
    rope.attention_factor = 0.1 * std::log(rope.factor) + 1.0;
    std::vector<LayerSpec> layers(static_cast<std::size_t>(model.layers), model.layer(0));
    for (std::size_t l = 0; l < layers.size(); l += 2) layers[l].attention().sliding_window = 128;
    model.set_layers(layers);
}

constexpr std::array presets{
    Preset{"smollm2-135m", "llama", 49152, 576, 1536, 30, 9, 3, 100000.0, false, true},
    Preset{"tinyllama-1.1b", "llama", 32000, 2048, 5632, 22, 32, 4, 10000.0, false, false},
    Preset{"llama-2-7b", "llama", 32000, 4096, 11008, 32, 32, 32, 10000.0, false, false},
    Preset{"llama-2-13b", "llama", 32000, 5120, 13824, 40, 40, 40, 10000.0, false, false},
    Preset{"llama-2-70b", "llama", 32000, 8192, 28672, 80, 64, 8, 10000.0, false, false},
    Preset{"llama-3.2-3b", "llama", 128256, 3072, 8192, 28, 24, 8, 500000.0, false, true},
    Preset{"llama-3.1-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 500000.0, false, false},
    Preset{"qwen2.5-3b", "qwen2", 151936, 2048, 11008, 36, 16, 2, 1000000.0, true, true},
    Preset{"qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 1000000.0, true, false},
    Preset{"qwen2.5-14b", "qwen2", 152064, 5120, 13824, 48, 40, 8, 1000000.0, true, false},
    Preset{"qwen2.5-32b", "qwen2", 152064, 5120, 27648, 64, 40, 8, 1000000.0, true, false},
    Preset{"llama-3-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 500000.0, false, false},
    Preset{"qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, 1000000.0, false, false, 128, true},
    Preset{"qwen3-14b", "qwen3", 151936, 5120, 17408, 40, 40, 8, 1000000.0, false, false, 128,
           true},
    Preset{"qwen3-30b-a3b",
           "qwen3_moe",
           151936,
           2048,
           6144,
           48,
           32,
           4,
           1000000.0,
           false,
           false,
           128,
           true,
           {128, 8, 768, true}},
    Preset{"qwen3-235b-a22b",
           "qwen3_moe",
           151936,
           4096,
           12288,
           94,
           64,
           4,
           1000000.0,
           false,
           false,
           128,
           true,
           {128, 8, 1536, true}},
    hybrid("qwen3.5-4b", 2560, 9216, 32, 16, 4, 32, true),
    hybrid("qwen3.5-27b", 5120, 17408, 64, 24, 4, 48, false),
    hybrid_of_experts("qwen3.6-35b-a3b", 2048, 40, 16, 2, 32,
                      {.count = 256,
                       .per_token = 8,
                       .size = 512,
                       .normalised = true,
                       .shared_size = 512,
                       .shared_gate = true}),
    Preset{.name = "gpt-oss-20b",
           .family = "gpt_oss",
           .vocab = 201088,
           .hidden = 2880,
           .intermediate = 2880,
           .layers = 24,
           .heads = 64,
           .kv_heads = 8,
           .theta = 150000.0,
           .qkv_bias = true,
           .tied = false,
           .head_dim = 64,
           .experts = {.count = 32,
                       .per_token = 4,
                       .size = 2880,
                       .normalised = true,
                       .activation = Activation::clamped_swiglu,
                       .names = ExpertNames::gpt_oss,
                       .router_bias = true,
                       .bias = true},
           .add_further = add_sinks_and_windows},
};

void add_delta_nets(const DeltaNetSpec& net, ModelSpec& model) {
    constexpr std::size_t interval = 4;
    model.norm_plus_one = true;
    model.attention().output_gate = true;
    model.attention().rope->rotated = 0.25;
    std::vector<LayerSpec> layers(static_cast<std::size_t>(model.layers), model.layer(0));
    for (std::size_t l = 0; l < layers.size(); ++l) {
        if ((l + 1) % interval != 0) layers[l].mixer = net;
    }
    model.set_layers(layers);
}

}  // namespace

std::optional<ModelSpec> model_preset(const std::string& name) {
    for (const auto& [word, format] : quantize_words) {
        const std::string suffix = cat("-", word);
        if (!name.ends_with(suffix)) continue;
        auto model = model_preset(name.substr(0, name.size() - suffix.size()));
        if (!model) return std::nullopt;
        model->quantization = {format, SourceType::bf16};
        return model;
    }
    for (const Preset& preset : presets) {
        if (name != preset.name) continue;
        ModelSpec model;
        model.family = preset.family;
        model.vocab_size = preset.vocab;
        model.hidden_size = preset.hidden;
        model.layers = preset.layers;
        model.rms_norm_eps = 1e-5;
        AttentionSpec& attention = model.attention();
        attention.heads = preset.heads;
        attention.kv_heads = preset.kv_heads;
        attention.head_dim = preset.head_dim > 0 ? preset.head_dim : preset.hidden / preset.heads;
        attention.qk_norm = preset.qk_norm;
        attention.rope->theta = preset.theta;
        attention.qkv_bias = preset.qkv_bias;
        model.dense().size = preset.intermediate;
        if (preset.experts.count > 0) model.descriptions.front().mlp = preset.experts;
        model.tie_word_embeddings = preset.tied;
        if (preset.net.value_heads > 0) add_delta_nets(preset.net, model);
        if (preset.add_further != nullptr) preset.add_further(model);
        return model;
    }
    return std::nullopt;
}

std::vector<std::string> model_preset_names() {
    std::vector<std::string> names;
    names.reserve(presets.size());
    for (const Preset& preset : presets) names.emplace_back(preset.name);
    return names;
}

}  // namespace loratrain
