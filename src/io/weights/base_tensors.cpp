#include "io/weights/base_tensors.h"

#include "io/tensor_names.h"

namespace loratrain {

namespace {

void add_linear(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                Linear linear) {
    const LinearShape shape = linear_shape(spec, linear);
    tensors.push_back({weight_name(layer, linear), {shape.out, shape.in}});
    if (has_bias(spec, linear)) tensors.push_back({bias_name(layer, linear), {shape.out}});
}

}  // namespace

std::vector<BaseTensor> base_tensors(const ModelSpec& spec) {
    std::vector<BaseTensor> tensors{{embedding_name, {spec.vocab_size, spec.hidden_size}}};
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        tensors.push_back({norm_name(layer, LayerNorm::input), {spec.hidden_size}});
        for (const Linear linear : {Linear::q, Linear::k, Linear::v, Linear::o}) {
            add_linear(tensors, spec, layer, linear);
        }
        if (spec.qk_norm) {
            tensors.push_back({norm_name(layer, LayerNorm::q), {spec.head_dim}});
            tensors.push_back({norm_name(layer, LayerNorm::k), {spec.head_dim}});
        }
        tensors.push_back({norm_name(layer, LayerNorm::post_attention), {spec.hidden_size}});
        for (const Linear linear : {Linear::gate, Linear::up, Linear::down}) {
            add_linear(tensors, spec, layer, linear);
        }
    }
    tensors.push_back({final_norm_name, {spec.hidden_size}});
    if (!spec.tie_word_embeddings) {
        tensors.push_back({head_name, {spec.vocab_size, spec.hidden_size}});
    }
    return tensors;
}

}  // namespace loratrain
