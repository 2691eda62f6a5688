#include "adapter/adapter_bank.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/rng.h"
#include "io/adapters/adapter_file.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

template <class Visit>
void for_each_linear(const AdapterJob& adapter, const ModelSpec& model, Visit visit) {
    for (int g = 0; g < linear_group_count; ++g) {
        const LinearGroupShape group = group_shape(model, static_cast<LinearGroup>(g));
        for (const bool is_b : {false, true}) {
            for (int i = 0; i < group.count; ++i) {
                const Linear linear = group.linears[static_cast<std::size_t>(i)];
                if (adapter.targets_linear(linear)) visit(linear, is_b);
            }
        }
    }
}

std::size_t part_index(AdapterBank::Part part) {
    switch (part) {
        case AdapterBank::Part::parameters:
            return 0;
        case AdapterBank::Part::first_moments:
            return 1;
        case AdapterBank::Part::second_moments:
            return 2;
        case AdapterBank::Part::gradients:
            return 3;
    }
    return 0;
}

std::vector<float> fresh_factor_a(const AdapterJob& adapter, std::int64_t layer, Linear linear,
                                  std::int64_t in) {
    const std::uint64_t key =
        tensor_key(adapter.seed, adapter.name, module_path(layer, linear) + ".lora_A");
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
    std::vector<float> values(static_cast<std::size_t>(adapter.r * in));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = (2.0F * uniform_float(key, i) - 1.0F) * bound;
    }
    return values;
}

}  // namespace

std::vector<NamedTensor> adapter_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                         const LayerRange& layers) {
    std::vector<NamedTensor> tensors;
    for (std::int32_t l = 0; l < layers.count; ++l) {
        for_each_linear(adapter, model, [&](Linear linear, bool is_b) {
            const LinearShape shape = linear_shape(model, linear);
            NamedTensor tensor;
            tensor.name = peft_tensor_name(layers.first + l, linear, is_b);
            tensor.shape = is_b ? std::vector<std::int64_t>{shape.out, adapter.r}
                                : std::vector<std::int64_t>{adapter.r, shape.in};
            tensors.push_back(std::move(tensor));
        });
    }
    return tensors;
}

AdapterBank::AdapterBank(const Job& job, const ReplicaView& view, const StagePlan& stage,
                         Backend& backend)
    : job_(job),
      model_(view.lane_model),
      stage_(stage),
      capacity_(static_cast<std::size_t>(view.plan.adapter_capacity)),
      backend_(backend) {
    add_adapters();
    counters_ =
        backend.allocate(aligned(2 * capacity_ * sizeof(std::int64_t)), "adapter step counters");
    for (const AdapterId adapter : view.plan.first_admitted) reside(adapter);
}

void AdapterBank::add_adapters() {
    const std::size_t known = states_.size();
    LORATRAIN_CHECK(job_.adapters.size() <= capacity_, job_.adapters.size(),
                    " adapters, but room for ", capacity_);
    states_.resize(job_.adapters.size());
    for (std::size_t i = known; i < states_.size(); ++i) {
        place_factors(static_cast<AdapterId>(i));
    }
}

void AdapterBank::reside(AdapterId adapter) {
    State& state = states_[index(adapter)];
    LORATRAIN_CHECK(state.residence == Residence::absent || state.residence == Residence::suspended,
                    "adapter ", number(adapter), " cannot become resident");
    const auto bytes = aligned(static_cast<std::uint64_t>(state.count) * sizeof(float));
    for (Buffer& buffer : state.arrays) buffer = backend_.allocate(bytes, "adapter state");
    if (state.residence == Residence::absent) {
        initialise(adapter);
    } else {
        for (std::size_t p = 0; p < state.suspended.arrays.size(); ++p) {
            const std::vector<float>& values = state.suspended.arrays[p];
            backend_.upload(state.arrays[p].data(), values.data(), values.size() * sizeof(float));
        }
    }
    state.residence = Residence::resident;
    set_counters(adapter, state.suspended.counters);
    state.suspended = {};
    ++state.version;
    backend_.synchronize();
}

void AdapterBank::suspend(AdapterId adapter) {
    check_gradients_are_zero(adapter);
    State& state = states_[index(adapter)];
    state.suspended.counters = counters(adapter);
    for (std::size_t p = 0; p < state.suspended.arrays.size(); ++p) {
        std::vector<float>& values = state.suspended.arrays[p];
        values.resize(static_cast<std::size_t>(state.count));
        backend_.download(values.data(), state.arrays[p].data(), values.size() * sizeof(float));
    }
    for (Buffer& buffer : state.arrays) buffer = {};
    state.residence = Residence::suspended;
}

void AdapterBank::admit(const std::vector<AdapterId>& admitted) {
    const auto wanted = [&](AdapterId adapter) {
        return std::find(admitted.begin(), admitted.end(), adapter) != admitted.end();
    };
    for (std::size_t i = 0; i < states_.size(); ++i) {
        const auto adapter = static_cast<AdapterId>(i);
        if (residence(adapter) == Residence::resident && !wanted(adapter)) suspend(adapter);
    }
    for (const AdapterId adapter : admitted) {
        if (residence(adapter) != Residence::resident) reside(adapter);
    }
}

void AdapterBank::release(AdapterId adapter) {
    State& state = states_[index(adapter)];
    for (Buffer& buffer : state.arrays) buffer = {};
    state.suspended = {};
    state.residence = Residence::released;
}

void AdapterBank::check_gradients_are_zero(AdapterId adapter) const {
    const State& state = resident(adapter);
    std::vector<float> values(static_cast<std::size_t>(state.count));
    backend_.download(values.data(), state.gradients(), values.size() * sizeof(float));
    LORATRAIN_CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0F; }),
                    "adapter ", number(adapter), " is in the middle of a global batch");
}

const AdapterBank::State& AdapterBank::resident(AdapterId adapter) const {
    const State& state = states_[index(adapter)];
    LORATRAIN_CHECK(state.residence == Residence::resident, "adapter ", number(adapter),
                    " is not in backend memory");
    return state;
}

void AdapterBank::place_factors(AdapterId adapter) {
    const AdapterJob& job = job_.adapter(adapter);
    State& state = states_[index(adapter)];
    state.layers.resize(static_cast<std::size_t>(stage_.layer_count));
    const LayerRange own = layers_of(stage_, adapter);
    for (std::int32_t l = own.first; l < own.first + own.count; ++l) {
        auto& layer = state.layers[static_cast<std::size_t>(l - stage_.first_layer)];
        for_each_linear(job, model_, [&](Linear linear, bool is_b) {
            const LinearShape shape = linear_shape(model_, linear);
            FactorPlace& place = layer[static_cast<std::size_t>(linear)];
            place.rank = job.r;
            (is_b ? place.b : place.a) = state.count;
            state.count += job.r * (is_b ? shape.out : shape.in);
        });
    }
}

void AdapterBank::initialise(AdapterId adapter) {
    const AdapterJob& job = job_.adapter(adapter);
    const State& state = states_[index(adapter)];
    std::unique_ptr<AdapterFile> file;
    if (!job.init_from.empty()) {
        file = std::make_unique<AdapterFile>(job.init_from, job, model_);
    }
    const LayerRange own = layers_of(stage_, adapter);
    for (std::int32_t layer = own.first; layer < own.first + own.count; ++layer) {
        const auto& places = state.layers[static_cast<std::size_t>(layer - stage_.first_layer)];
        for_each_linear(job, model_, [&](Linear linear, bool is_b) {
            const FactorPlace& place = places[static_cast<std::size_t>(linear)];
            if (is_b && !file) return;
            const std::vector<float> values =
                file ? file->read(layer, linear, is_b)
                     : fresh_factor_a(job, layer, linear, linear_shape(model_, linear).in);
            backend_.upload(state.parameters() + (is_b ? place.b : place.a), values.data(),
                            values.size() * sizeof(float));
        });
    }
}

LoraSlot AdapterBank::slot(AdapterId adapter, std::int32_t layer, Linear linear) const {
    const State& state = resident(adapter);
    const AdapterJob& job = job_.adapter(adapter);
    const FactorPlace& place =
        state.layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(linear)];
    LoraSlot slot;
    if (place.rank == 0) return slot;
    slot.a = state.parameters() + place.a;
    slot.b = state.parameters() + place.b;
    slot.grad_a = state.gradients() + place.a;
    slot.grad_b = state.gradients() + place.b;
    slot.rank = place.rank;
    slot.scale = static_cast<float>(job.scaling());
    slot.dropout = dropout_threshold(job.lora_dropout);
    if (slot.dropout != 0) {
        slot.dropout_key =
            tensor_key(job.seed, job.name, module_path(stage_.first_layer + layer, linear));
    }
    return slot;
}

bool AdapterBank::targets_group(AdapterId adapter, LinearGroup group) const {
    const LinearGroupShape shape = group_shape(model_, group);
    return std::any_of(shape.linears.begin(), shape.linears.begin() + shape.count,
                       [&](Linear l) { return job_.adapter(adapter).targets_linear(l); });
}

void AdapterBank::sum_squares(AdapterId adapter, double* result) const {
    const State& state = resident(adapter);
    backend_.sum_squares(state.gradients(), state.count, result);
}

void AdapterBank::step(AdapterId adapter, double learning_rate, const double* grad_sumsq) {
    const State& state = resident(adapter);
    ++states_[index(adapter)].version;
    const AdapterJob& job = job_.adapter(adapter);
    AdamW op;
    op.parameters = state.parameters();
    op.gradients = state.gradients();
    op.first_moments = state.first_moments();
    op.second_moments = state.second_moments();
    op.count = state.count;
    op.learning_rate = learning_rate;
    op.beta1 = job.adam_beta1;
    op.beta2 = job.adam_beta2;
    op.epsilon = job.adam_epsilon;
    op.weight_decay = job.weight_decay;
    op.max_grad_norm = job.max_grad_norm;
    op.grad_sumsq = grad_sumsq;
    op.applied_steps = counters_of(adapter);
    op.skipped_steps = op.applied_steps + 1;
    backend_.adamw(op);
}

std::vector<NamedTensor> AdapterBank::download(AdapterId adapter, Part part) const {
    const State& state = states_[index(adapter)];
    const std::size_t p = part_index(part);
    const bool on_host = state.residence == Residence::suspended;
    if (!on_host) resident(adapter);
    std::vector<NamedTensor> tensors =
        adapter_tensors(job_.adapter(adapter), model_, layers_of(stage_, adapter));
    std::size_t at = 0;
    for (NamedTensor& tensor : tensors) {
        const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
        tensor.values.resize(count);
        if (!on_host) {
            backend_.download(tensor.values.data(), state.arrays[p].as<float>() + at,
                              count * sizeof(float));
        } else if (part != Part::gradients) {
            std::copy_n(state.suspended.arrays[p].data() + at, count, tensor.values.data());
        }
        at += count;
    }
    return tensors;
}

void AdapterBank::upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors) {
    State& state = states_[index(adapter)];
    std::vector<float> values;
    for (const NamedTensor& tensor : tensors) {
        values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
    LORATRAIN_CHECK(std::ssize(values) == state.count, "adapter state has ", values.size(),
                    " values instead of ", state.count);
    ++state.version;
    const std::size_t p = part_index(part);
    if (state.residence == Residence::resident) {
        backend_.upload(state.arrays[p].data(), values.data(), values.size() * sizeof(float));
        return;
    }
    LORATRAIN_CHECK(part != Part::gradients && state.residence != Residence::released, "adapter ",
                    number(adapter), " is not in backend memory");
    for (std::vector<float>& array : state.suspended.arrays) array.resize(values.size());
    state.suspended.arrays[p] = std::move(values);
    state.residence = Residence::suspended;
}

AdapterBank::Counters AdapterBank::counters(AdapterId adapter) const {
    const State& state = states_[index(adapter)];
    if (state.residence == Residence::suspended) return state.suspended.counters;
    resident(adapter);
    std::int64_t values[2];
    backend_.download(values, counters_of(adapter), sizeof(values));
    return {values[0], values[1]};
}

void AdapterBank::set_counters(AdapterId adapter, const Counters& counters) {
    State& state = states_[index(adapter)];
    if (state.residence == Residence::suspended) {
        state.suspended.counters = counters;
        return;
    }
    resident(adapter);
    const std::int64_t values[2] = {counters.applied_steps, counters.skipped_steps};
    backend_.upload(counters_of(adapter), values, sizeof(values));
}

}  // namespace loratrain
