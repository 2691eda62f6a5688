#include "selftest/tiny_model.h"

#include <cmath>

#include "base/rng.h"
#include "base/text.h"
#include "config/adapter_form.h"
#include "config/layer_tensors.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr std::uint64_t seed = 2023;

std::uint64_t key_of(const std::string& name) {
    return mix_key(seed, hash_name(name));
}

std::vector<double> norm_weights(std::int64_t count, const std::string& name) {
    std::vector<double> weights = random_host_matrix(1, count, key_of(name), 0.1).values;
    for (double& weight : weights) weight = static_cast<float>(1.0 + weight);
    return weights;
}

NamedTensor tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                   const std::vector<double>& values) {
    return {name, shape, std::vector<float>(values.begin(), values.end())};
}

NamedTensor tensor(const std::string& name, const HostMatrix& matrix) {
    return tensor(name, {matrix.rows, matrix.cols}, matrix.values);
}

ModelSpec tiny_spec() {
    ModelSpec spec;
    spec.family = "llama";
    spec.vocab_size = 48;
    spec.hidden_size = 32;
    spec.layers = 2;
    spec.rms_norm_eps = 1e-5;
    AttentionSpec attention;
    attention.heads = 4;
    attention.kv_heads = 2;
    attention.head_dim = 8;
    spec.attention() = attention;
    spec.dense().size = 64;
    return spec;
}

Json config_of(const ModelSpec& spec) {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", spec.family},
            {"vocab_size", spec.vocab_size},
            {"hidden_size", spec.hidden_size},
            {"intermediate_size", spec.dense().size},
            {"num_hidden_layers", spec.layers},
            {"num_attention_heads", spec.attention().heads},
            {"num_key_value_heads", spec.attention().kv_heads},
            {"head_dim", spec.attention().head_dim},
            {"max_position_embeddings", 64},
            {"hidden_act", "silu"},
            {"rms_norm_eps", spec.rms_norm_eps},
            {"rope_theta", spec.attention().rope->theta},
            {"tie_word_embeddings", false}};
}

TinyAdapter make_adapter(const ModelSpec& spec, const std::string& name, std::int64_t rank,
                         double alpha, const std::vector<Linear>& targets) {
    TinyAdapter adapter{name, rank, alpha, {}};
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        for (const Linear linear : targets) {
            const LinearShape shape = linear_shape(spec, linear);
            const std::uint64_t key = key_of(name + module_path(layer, linear));
            const double deviation = 1.0 / std::sqrt(static_cast<double>(shape.in));
            adapter.factors.push_back({layer, linear,
                                       random_host_matrix(rank, shape.in, key, deviation),
                                       random_host_matrix(shape.out, rank, key + 1, 0.1)});
        }
    }
    return adapter;
}

std::string norm_name(std::int64_t layer, LayerTensor norm) {
    return layer_tensor_name(layer, norm, LayerSpec{});
}

}  // namespace

TinyModel make_tiny_model() {
    TinyModel model;
    model.spec = tiny_spec();
    const ModelSpec& spec = model.spec;
    model.embedding =
        random_host_matrix(spec.vocab_size, spec.hidden_size, key_of(embedding_name), 1.0);
    model.head = random_host_matrix(spec.vocab_size, spec.hidden_size, key_of(head_name), 0.3);
    model.final_norm = norm_weights(spec.hidden_size, final_norm_name);
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        TinyModel::Layer weights;
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const LinearShape shape = linear_shape(spec, linear);
            weights.linears[i] =
                random_host_matrix(shape.out, shape.in, key_of(module_path(layer, linear)), 0.2);
        }
        weights.input_norm =
            norm_weights(spec.hidden_size, norm_name(layer, LayerTensor::norm_before_mixer));
        weights.post_attention_norm =
            norm_weights(spec.hidden_size, norm_name(layer, LayerTensor::norm_before_mlp));
        model.layers.push_back(weights);
    }
    return model;
}

void write_tiny_model(const TinyModel& model, const std::string& folder) {
    make_directory(folder);
    const std::vector<std::int64_t> hidden{model.spec.hidden_size};
    std::vector<NamedTensor> tensors{tensor(embedding_name, model.embedding),
                                     tensor(head_name, model.head),
                                     tensor(final_norm_name, hidden, model.final_norm)};
    for (std::int64_t layer = 0; layer < model.spec.layers; ++layer) {
        const TinyModel::Layer& weights = model.layers[static_cast<std::size_t>(layer)];
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (!has_linear(model.spec, linear)) continue;
            tensors.push_back(tensor(weight_name(layer, linear), weights.linears[i]));
        }
        tensors.push_back(
            tensor(norm_name(layer, LayerTensor::norm_before_mixer), hidden, weights.input_norm));
        tensors.push_back(tensor(norm_name(layer, LayerTensor::norm_before_mlp), hidden,
                                 weights.post_attention_norm));
    }
    write_safetensors(folder + "/model.safetensors", tensors);
    write_text_atomic(folder + "/config.json", dump_json(config_of(model.spec), 2));
}

std::vector<TinyAdapter> make_tiny_adapters(const TinyModel& model) {
    return {make_adapter(model.spec, "attention-r2", 2, 8.0, {Linear::q, Linear::v, Linear::o}),
            make_adapter(model.spec, "mlp-r1", 1, 1.5, {Linear::k, Linear::gate, Linear::down})};
}

void write_tiny_adapter(const TinyAdapter& adapter, const std::string& folder) {
    make_directory(folder);
    const AdapterForm form = lora_form();
    std::vector<NamedTensor> tensors;
    Json targets = Json::array();
    for (const TinyFactors& factors : adapter.factors) {
        if (factors.layer == 0) targets.push_back(module_name(factors.linear));
        for (const FormTensor& of : form.tensors) {
            tensors.push_back(tensor(peft_tensor_name(factors.layer, factors.linear, of),
                                     of.role == TensorRole::a ? factors.a : factors.b));
        }
    }
    write_safetensors(folder + "/adapter_model.safetensors", tensors);
    write_text_atomic(folder + "/adapter_config.json",
                      dump_json(Json{{"peft_type", "LORA"},
                                     {"task_type", "CAUSAL_LM"},
                                     {"base_model_name_or_path", "tiny"},
                                     {"r", adapter.rank},
                                     {"lora_alpha", adapter.alpha},
                                     {"lora_dropout", 0.0},
                                     {"bias", "none"},
                                     {"target_modules", targets}},
                                2));
}

TinyAdapter read_tiny_adapter(const TinyAdapter& like, const std::string& folder) {
    const SafetensorsFile file(folder + "/adapter_model.safetensors");
    TinyAdapter adapter = like;
    for (TinyFactors& factors : adapter.factors) {
        for (const FormTensor& of : lora_form().tensors) {
            HostMatrix& matrix = of.role == TensorRole::a ? factors.a : factors.b;
            const auto values =
                file.read_floats(peft_tensor_name(factors.layer, factors.linear, of));
            matrix.values.assign(values.begin(), values.end());
        }
    }
    return adapter;
}

std::vector<TinySample> make_tiny_samples(std::int64_t vocabulary, std::uint64_t number) {
    constexpr int count = 4;
    constexpr std::size_t not_trained = 2;
    const std::uint64_t key = mix_key(seed, number);
    std::uint64_t drawn = 0;
    std::vector<TinySample> samples(count);
    for (TinySample& sample : samples) {
        const std::uint64_t length = 5 + uniform_int(key, drawn++, 6);
        for (std::uint64_t i = 0; i < length; ++i) {
            const auto token = static_cast<std::int64_t>(
                uniform_int(key, drawn++, static_cast<std::uint64_t>(vocabulary)));
            sample.tokens.push_back(token);
            sample.labels.push_back(sample.labels.size() < not_trained ? -100 : token);
        }
    }
    return samples;
}

void write_tiny_samples(const std::vector<TinySample>& samples, const std::string& path) {
    std::string text;
    for (const TinySample& sample : samples) {
        text += dump_json(Json{{"input_ids", sample.tokens}, {"labels", sample.labels}}) + "\n";
    }
    write_text_atomic(path, text);
}

}  // namespace loratrain
