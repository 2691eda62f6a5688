#include "model/frozen_weights.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/task_progress.h"
#include "io/tensor_names.h"
#include "model/rope_frequencies.h"

namespace loratrain {

namespace {

WeightResidence residence(bool staged) {
    return staged ? WeightResidence::staged : WeightResidence::resident;
}

}  // namespace

FrozenWeights::FrozenWeights(const ReplicaView& view, const StagePlan& stage,
                             const WeightSource& source, Backend& backend, std::int32_t lane,
                             SharedLayers* shared_layers)
    : view_(view),
      stage_(stage),
      lane_{lane, view.replica.tensor},
      streamed_(streamed_layer(view)),
      vocabulary_(lane_vocabulary(view.plan.model, lane_)),
      source_(source),
      backend_(backend),
      reader_(source, backend) {
    try {
        load(shared_layers);
    } catch (const std::exception& error) {
        if (shared_layers != nullptr) shared_layers->loaded(error.what(), nullptr);
        throw;
    }
    if (shared_layers != nullptr) shared_layers->loaded("", held_.data());
}

void FrozenWeights::load(SharedLayers* shared_layers) {
    LORATRAIN_CHECK(backend_.compute_dtype() == view_.plan.compute,
                    to_string(backend_.compute_dtype()));
    const ModelSpec& model = view_.lane_model;
    layers_.resize(static_cast<std::size_t>(stage_.layer_count));
    make_unit_scales();
    if (streamed_layers(stage_) > 0) {
        stream_ = std::make_unique<LayerStream>(view_, stage_, backend_, shared_layers);
    }
    if (shared_layers != nullptr && shared_layers->owned_by_ranks()) make_room(*shared_layers);
    for (const RopeSpec* rope : ropes_of(model)) inv_freq_.push_back(load_frequencies(*rope));
    load_layers();
    if (stage_.has_embedding) {
        embedding_ = load_vocabulary(embedding_name);
    }
    if (stage_.has_head) {
        final_norm_ = load_vector(final_norm_name, model.hidden_size, Slice{0, model.hidden_size});
        if (model.tie_word_embeddings && stage_.has_embedding) {
            head_.view = embedding_.view;
        } else {
            head_ = load_vocabulary(model.tie_word_embeddings ? embedding_name : head_name);
        }
    }
    reader_.release();
}

void FrozenWeights::make_room(SharedLayers& shared_layers) {
    if (stage_.owners.empty()) return;
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(owned_layers(stage_)) * streamed_.buffer_bytes;
    room_ = static_cast<char*>(shared_layers.room());
    if (room_ != nullptr || bytes == 0) return;
    held_ = backend_.allocate(bytes, "base weights that other ranks read");
    room_ = held_.as<char>();
}

void FrozenWeights::load_layers() {
    char* room = room_;
    TaskProgress progress("loading base weights",
                          static_cast<std::uint64_t>(stage_.layer_count) * streamed_.host_bytes);
    for (std::int32_t l = 0; l < stage_.layer_count; ++l) {
        if (l > 0) progress.add(streamed_.host_bytes);
        LayerWeights& weights = layers_[static_cast<std::size_t>(l)];
        load_tensors(stage_.first_layer + l, weights);
        load_experts(stage_.first_layer + l, weights.experts);
        if (streams(l)) {
            load_streamed(l, weights);
            continue;
        }
        if (room != nullptr) {
            place_in(room, weights);
            room += streamed_.buffer_bytes;
        }
        load_linears(stage_.first_layer + l, weights);
    }
    dense_ = Buffer();
}

void FrozenWeights::load_streamed(std::int32_t local, LayerWeights& weights) {
    if (!stream_->fills(local)) return;
    const std::int32_t layer = stage_.first_layer + local;
    if (read_linears(layer, stream_->host_layer(local))) return;
    place_in(stream_->assembly(), weights);
    load_linears(layer, weights);
    stream_->keep(local);
    take_away(weights);
}

bool FrozenWeights::is_read_as_it_is(std::int32_t layer) const {
    if (view_.plan.fp8_linears) return false;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!has_linear(view_.lane_model.layer(layer), linear)) continue;
        const bool whole =
            linear_shape(view_.lane_model, linear).in == linear_shape(view_.plan.model, linear).in;
        if (!whole || source_.random_matrix(weight_name(layer, linear))) return false;
    }
    return traits_of(linear_format(view_.plan)).dense || weights_are_staged(view_.plan);
}

bool FrozenWeights::read_linears(std::int32_t layer, char* host) {
    if (!is_read_as_it_is(layer)) return false;
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(view_.lane_model, layer, group);
        const MatrixShape packed{shape.out, shape.in};
        const WeightView host_rows =
            weight_view(host + streamed_.groups[static_cast<std::size_t>(group)].in_host,
                        linear_format(view_.plan), WeightResidence::resident, packed, packed);
        for_linears(view_.lane_model, shape,
                    [&](Linear linear, const LinearShape& of, std::int64_t row) {
                        reader_.read_linear(weight_name(layer, linear), part_of(linear),
                                            host_rows.row_range(row, of.out));
                    });
    }
    return true;
}

const float* FrozenWeights::frequencies_of(const RopeSpec& rope) const {
    const std::vector<const RopeSpec*> ropes = ropes_of(view_.lane_model);
    const auto found = std::find_if(ropes.begin(), ropes.end(),
                                    [&](const RopeSpec* other) { return *other == rope; });
    return inv_freq_[static_cast<std::size_t>(found - ropes.begin())].as<float>();
}

Buffer FrozenWeights::load_frequencies(const RopeSpec& rope) {
    const std::vector<float> frequencies =
        rope_frequencies(rope, rotary_dim(view_.lane_model.attention().head_dim, rope));
    Buffer table = backend_.allocate(aligned(frequencies.size() * sizeof(float)), "rotary table");
    backend_.upload(table.data(), frequencies.data(), frequencies.size() * sizeof(float));
    return table;
}

void FrozenWeights::expect(const std::vector<std::int32_t>& layers) {
    if (!streams()) return;
    std::vector<std::int32_t> streamed;
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(streamed),
                 [this](std::int32_t layer) { return streams(layer); });
    stream_->expect(std::move(streamed));
}

LayerWeights& FrozenWeights::use(std::int32_t local) {
    LayerWeights& weights = layer(local);
    if (!streams() || !streams(local)) return weights;
    const LayerStream::Place place = stream_->use(local);
    place_in(place.data, weights);
    for (GroupWeights& group : weights.groups) {
        if (place.anew) group.packed_width = -1;
    }
    return weights;
}

void FrozenWeights::done(std::int32_t local) {
    if (!streams() || !streams(local)) return;
    take_away(layer(local));
    stream_->done();
}

void FrozenWeights::place_in(char* buffer, LayerWeights& weights) {
    for (const LinearGroup group : linear_groups) {
        const auto at = static_cast<std::size_t>(group);
        place_group(group, buffer + streamed_.groups[at].in_buffer, weights.groups[at]);
    }
}

void FrozenWeights::take_away(LayerWeights& weights) {
    for (GroupWeights& group : weights.groups) {
        group.matrix.view = {};
        group.fp8 = {};
    }
}

void FrozenWeights::load_tensors(std::int32_t layer, LayerWeights& weights) {
    const ModelSpec& model = view_.lane_model;
    weights.spec = model.layer(layer);
    for (int i = 0; i < layer_tensor_count; ++i) {
        load_tensor(layer, static_cast<LayerTensor>(i), weights);
    }
    const AttentionSpec* attention = weights.spec.if_attention();
    if (attention != nullptr && attention->rope) {
        weights.inv_freq = frequencies_of(*attention->rope);
    }
    for (const LinearGroup group : linear_groups) {
        GroupWeights& of_group = weights.groups[static_cast<std::size_t>(group)];
        of_group.shape = group_shape(model, layer, group);
        load_biases(layer, of_group);
    }
}

void FrozenWeights::load_tensor(std::int32_t layer, LayerTensor which, LayerWeights& weights) {
    const std::int64_t hidden = view_.lane_model.hidden_size;
    const LayerTensorShape own = layer_tensor_shape(weights.spec, hidden, which);
    if (own.columns == 0) return;
    const auto at = static_cast<std::size_t>(which);
    const std::string name = layer_tensor_name(layer, which, weights.spec);
    if (is_on_host(which)) {
        return source_.read_rows(name, 0, matrix(&weights.numbers[at], DType::f32, 1, 1));
    }
    const LayerTensorShape whole = layer_tensor_shape(view_.plan.model.layer(layer), hidden, which);
    const TensorSlice slice = lane_slice(whole, own, lane_);
    const DType dtype = is_f32(which) ? DType::f32 : backend_.compute_dtype();
    const auto bytes = static_cast<std::uint64_t>(own.elements()) * size_of(dtype);
    weights.tensors[at] = backend_.allocate(aligned(bytes), name.c_str());
    const bool is_shared = own.rows < whole.rows;
    if (is_of_first_lane(which) && !is_shared && lane_.index > 0) return;
    const MatrixShape shape{std::max<std::int64_t>(1, whole.rows), whole.columns};
    const TensorView target =
        matrix(weights.tensors[at].data(), dtype, slice.rows.count(), own.columns);
    slice.columns.for_each_piece(
        whole.columns, [&](std::int64_t first, std::int64_t place, std::int64_t count) {
            reader_.load_rows(name, {shape, slice.rows, first}, target.col_range(place, count));
        });
}

void FrozenWeights::load_linears(std::int32_t layer, LayerWeights& weights) {
    for (const LinearGroup group : linear_groups) {
        load_group(layer, group, weights.groups[static_cast<std::size_t>(group)]);
    }
}

void FrozenWeights::load_group(std::int32_t layer, LinearGroup group, GroupWeights& weights) {
    if (weights.shape.count == 0) return;
    if (room_ == nullptr && !streams(layer - stage_.first_layer)) {
        Buffer& storage = view_.plan.fp8_linears ? weights.fp8.storage : weights.matrix.storage;
        storage = allocate_group(group, weights);
    }
    if (view_.plan.fp8_linears) return load_fp8_group(layer, weights);
    for_linears(view_.lane_model, weights.shape,
                [&](Linear linear, const LinearShape& shape, std::int64_t row) {
                    reader_.load_linear(weight_name(layer, linear), part_of(linear),
                                        weights.matrix.view.row_range(row, shape.out));
                });
}

void FrozenWeights::load_experts(std::int32_t layer, ExpertWeights& weights) {
    const ModelSpec& model = view_.lane_model;
    const ExpertSpec* experts = model.layer(layer).experts();
    if (experts == nullptr) return;
    const Slice own = lane_experts(*experts, lane_);
    const std::int64_t size = experts->size;
    const std::int64_t hidden = model.hidden_size;
    weights.gate_up = allocate_experts(experts_gate_up_shape(*experts, hidden));
    weights.down = allocate_experts(experts_down_shape(*experts, hidden));
    const auto load = [&](std::int64_t expert, Linear linear, const ExpertMatrix& to,
                          std::int64_t first, std::int64_t rows) {
        const std::string name = expert_weight_name(layer, own.first + expert, linear);
        const TensorPart part = part_of(linear, target_of(view_.plan.model, layer, linear));
        if (view_.plan.fp8_linears) return load_codes(name, part, to.codes.row_range(first, rows));
        reader_.load_linear(name, part, to.matrix.view.row_range(first, rows));
    };
    for (std::int64_t expert = 0; expert < own.count; ++expert) {
        load(expert, Linear::gate, weights.gate_up, 2 * expert * size, size);
        load(expert, Linear::up, weights.gate_up, (2 * expert + 1) * size, size);
        load(expert, Linear::down, weights.down, expert * hidden, hidden);
    }
    for (ExpertMatrix* of : {&weights.gate_up, &weights.down})
        transpose_experts(*of, experts->held());
}

ExpertMatrix FrozenWeights::allocate_experts(const MatrixShape& shape) {
    ExpertMatrix experts;
    Buffer& storage = experts.matrix.storage;
    storage = backend_.allocate(experts_bytes(view_.plan, shape), "weights of experts");
    if (!view_.plan.fp8_linears) {
        experts.matrix.view = linear_view(storage.data(), shape, shape);
        return experts;
    }
    const Fp8ExpertsLayout layout = fp8_experts_layout(shape);
    auto* start = storage.as<std::uint8_t>();
    experts.codes = {start + layout.codes, reinterpret_cast<float*>(start + layout.scales),
                     shape.rows, shape.cols, shape.cols};
    experts.transposed.codes = start + layout.transposed;
    return experts;
}

void FrozenWeights::transpose_experts(ExpertMatrix& of, std::int64_t count) {
    if (of.codes.codes == nullptr) return;
    const std::int64_t n = of.codes.rows / count;
    const std::int64_t k = of.codes.cols;
    of.transposed = {of.transposed.codes, unit_scales_.as<float>(), count * k, n, n};
    for (std::int64_t expert = 0; expert < count; ++expert) {
        backend_.transpose_codes(
            {of.transposed.row_range(expert * k, k), of.codes.row_range(expert * n, n)});
    }
}

WeightView FrozenWeights::linear_view(void* data, const MatrixShape& stored,
                                      const MatrixShape& shape) const {
    const std::optional<Quantization>& quantization = view_.plan.model.quantization;
    return weight_view(data, linear_format(view_.plan), residence(weights_are_staged(view_.plan)),
                       stored, shape, quantization ? quantization->source : SourceType::f32);
}

TensorPart FrozenWeights::part_of(Linear linear) const {
    return part_of(linear, linear_of(view_.plan.model, linear));
}

TensorPart FrozenWeights::part_of(Linear linear, const LayerLinear& of) const {
    const LinearShape& whole = of.shape;
    const LinearSlice slice = lane_slice(view_.plan.model, linear, of, lane_);
    return {{whole.out, whole.in}, slice.out, slice.in.first};
}

void FrozenWeights::load_biases(std::int32_t layer, GroupWeights& weights) {
    for (int i = 0; i < weights.shape.count; ++i) {
        const Linear linear = weights.shape.linears[static_cast<std::size_t>(i)];
        if (!has_bias(view_.lane_model, linear)) continue;
        weights.bias[static_cast<std::size_t>(i)] = load_bias(layer, linear);
    }
}

void FrozenWeights::make_unit_scales() {
    const std::uint64_t bytes = unit_scale_bytes(view_);
    const std::vector<float> ones(bytes / sizeof(float), 1.0F);
    unit_scales_ = backend_.allocate(bytes, "scales of transposed weights");
    if (bytes > 0) backend_.upload(unit_scales_.data(), ones.data(), bytes);
}

void FrozenWeights::load_fp8_group(std::int32_t layer, GroupWeights& weights) {
    const Fp8Weights& fp8 = weights.fp8;
    for_linears(view_.lane_model, weights.shape,
                [&](Linear linear, const LinearShape& shape, std::int64_t row) {
                    load_codes(weight_name(layer, linear), part_of(linear),
                               fp8.codes.row_range(row, shape.out));
                });
    if (!view_.plan.fp8_one_order) backend_.transpose_codes({fp8.transposed, fp8.codes});
}

void FrozenWeights::load_codes(const std::string& name, const TensorPart& part,
                               const Fp8Rows& codes) {
    if (linear_format(view_.plan) == WeightFormat::e4m3) {
        return reader_.load_linear(name, part,
                                   {codes.codes, codes.scales, WeightFormat::e4m3, SourceType::f32,
                                    WeightResidence::resident, codes.rows, codes.cols, codes.cols});
    }
    const DType dtype = backend_.compute_dtype();
    const std::size_t bytes = static_cast<std::size_t>(codes.rows * codes.cols) * size_of(dtype);
    if (dense_.bytes() < bytes) {
        dense_ = Buffer();
        dense_ = backend_.allocate(bytes, "weights that become codes");
    }
    const TensorView dense = matrix(dense_.data(), dtype, codes.rows, codes.cols);
    reader_.load_rows(name, part, dense);
    backend_.quantize_rows({dense, nullptr, codes});
}

Buffer FrozenWeights::load_bias(std::int32_t layer, Linear linear) {
    const std::string name = bias_name(layer, linear);
    const Slices own = lane_slice(view_.plan.model, linear, lane_).out;
    if (is_cut_by_columns(linear) && lane_.index > 0) {
        const auto bytes =
            static_cast<std::uint64_t>(own.count()) * size_of(backend_.compute_dtype());
        return backend_.allocate(aligned(bytes), name.c_str());
    }
    return load_vector(name, linear_shape(view_.plan.model, linear).out, own);
}

Buffer FrozenWeights::load_vector(const std::string& name, std::int64_t whole, const Slices& own) {
    const DType dtype = backend_.compute_dtype();
    Buffer buffer = backend_.allocate(
        aligned(static_cast<std::uint64_t>(own.count()) * size_of(dtype)), name.c_str());
    const TensorView vector = matrix(buffer.data(), dtype, 1, own.count());
    own.for_each_piece(whole, [&](std::int64_t first, std::int64_t place, std::int64_t count) {
        reader_.load_rows(name, {{1, whole}, Slice{0, 1}, first}, vector.col_range(place, count));
    });
    return buffer;
}

FrozenMatrix FrozenWeights::load_vocabulary(const std::string& name) {
    const std::int64_t hidden = view_.plan.model.hidden_size;
    FrozenMatrix frozen;
    frozen.storage = backend_.allocate(vocabulary_bytes(view_), name.c_str());
    frozen.view = weight_view(frozen.storage.data(), view_.plan.weights,
                              residence(head_is_staged(view_.plan)),
                              vocabulary_shape(view_.lane_model), {vocabulary_.count, hidden});
    reader_.load_rows(name, {vocabulary_shape(view_.plan.model), vocabulary_, 0},
                      frozen.view.dense());
    return frozen;
}

Buffer FrozenWeights::allocate_group(LinearGroup group, GroupWeights& weights) {
    Buffer storage = backend_.allocate(
        group_bytes(view_, group), view_.plan.fp8_linears ? "base weights in fp8" : "base weights");
    place_group(group, storage.data(), weights);
    return storage;
}

void FrozenWeights::place_group(LinearGroup group, void* data, GroupWeights& weights) {
    if (weights.shape.count == 0) return;
    const std::int64_t n = weights.shape.out;
    const std::int64_t k = weights.shape.in;
    if (!view_.plan.fp8_linears) {
        weights.matrix.view = linear_view(data, stored_shape(view_, group), {n, k});
        return;
    }
    const std::int64_t r = view_.replica.pad_columns;
    const DType dtype = backend_.compute_dtype();
    const Fp8GroupLayout layout = fp8_group_layout(view_, group);
    Fp8Weights& fp8 = weights.fp8;
    const auto at = [&](std::uint64_t offset) { return static_cast<std::uint8_t*>(data) + offset; };
    fp8.codes = {at(layout.codes), reinterpret_cast<float*>(at(layout.scales)), n, k, k};
    fp8.transposed = {view_.plan.fp8_one_order ? nullptr : at(layout.transposed),
                      unit_scales_.as<float>(), k, n, n};
    fp8.b_pad = matrix(at(layout.b_pad), dtype, n, r);
    fp8.a_pad = matrix(at(layout.a_pad), dtype, weights.shape.count * r, k);
}

}  // namespace loratrain
