#include "adapter/adapter_bank.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr StatePart all_parts[] = {StatePart::parameters, StatePart::first_moments,
                                   StatePart::second_moments, StatePart::gradients};

/// Of the tensors for which `wanted` holds, neighbours as one.
template <class Wanted>
std::vector<ArrayRange> ranges_of(std::span<const PlacedTensor> tensors, const Wanted& wanted) {
    std::vector<ArrayRange> ranges;
    bool goes_on = false;
    for (const PlacedTensor& tensor : tensors) {
        const bool is_wanted = wanted(tensor);
        if (is_wanted && goes_on) {
            ranges.back().count += tensor.range.count;
        } else if (is_wanted) {
            ranges.push_back(tensor.range);
        }
        goes_on = is_wanted;
    }
    return ranges;
}

}  // namespace

AdapterBank::AdapterBank(const Job& job, const ReplicaView& view, const StagePlan& stage,
                         Backend& backend, const StageLanes& lanes, BaseValues base)
    : job_(job),
      model_(view.plan.model),
      most_vocabulary_(view.lane_model.vocab_size),
      stage_(stage),
      capacity_(static_cast<std::size_t>(view.plan.adapter_capacity)),
      backend_(backend),
      lanes_(lanes),
      base_(std::move(base)) {
    LORATRAIN_CHECK(lanes.count() == view.replica.tensor, lanes.count(), " lanes instead of ",
                    view.replica.tensor);
    add_adapters();
    counters_ =
        backend.allocate(aligned(2 * capacity_ * sizeof(std::int64_t)), "adapter step counters");
    if (lanes.count() > 1) {
        lane_squares_ = backend.allocate(lane_squares_bytes(view), "squares of lanes");
    }
    for (const AdapterId adapter : view.plan.first_admitted) reside(adapter);
}

void AdapterBank::add_adapters() {
    const std::size_t known = states_.size();
    LORATRAIN_CHECK(job_.adapters.size() <= capacity_, job_.adapters.size(),
                    " adapters, but room for ", capacity_);
    states_.resize(job_.adapters.size());
    for (std::size_t i = known; i < states_.size(); ++i) lay_out(static_cast<AdapterId>(i));
}

std::int64_t AdapterBank::planned_count(const PlacedTensor& tensor) const {
    const bool outer = is_outer(tensor.linear);
    if (tensor.expert != no_expert && has_whole_experts(model_)) {
        const Slice first = lane_experts(*model_.experts(), {0, lanes_.count()});
        return tensor.expert < first.count ? tensor.cut.whole_count() : 0;
    }
    if (!outer || tensor.cut.is_whole()) return tensor.range.count;
    return tensor.range.count / vocabulary().count * most_vocabulary_;
}

/// A gradient is partial where several lanes compute with the tensor.
void AdapterBank::lay_out(AdapterId adapter) {
    State& state = states_[index(adapter)];
    state.layout =
        AdapterLayout(job_.adapter(adapter), model_, state_layers(stage_, adapter), lane());
    const AdapterJob& job = job_.adapter(adapter);
    for (const PlacedTensor& tensor : state.layout.tensors(Part::parameters)) {
        const bool has_norms =
            job.form.keeps_norms && job.form.tensors[tensor.of_form].role == TensorRole::magnitude;
        state.first_norm.push_back(has_norms ? state.planned.norms : -1);
        if (has_norms) state.planned.norms += tensor.range.count;
        state.planned.add(planned_count(tensor), state.layout.is_trained(tensor),
                          optim_on(job, tensor.linear));
    }
    for (const std::int32_t token : job.trainable_token_indices) {
        const std::int64_t place = token - vocabulary().first;
        const bool here = place >= 0 && place < vocabulary().count;
        state.tokens.push_back(here ? static_cast<std::int32_t>(place) : -1);
    }
    state.moments = MomentLayout(state.layout, [&](const PlacedTensor& tensor) {
        const bool outer = is_outer(tensor.linear);
        return has_coded_moments(optim_on(job, tensor.linear),
                                 outer ? planned_count(tensor) : tensor.range.count);
    });
    const auto is_partial = [&](const PlacedTensor& tensor) {
        const bool alone = tensor.expert != no_expert && has_whole_experts(model_);
        return lanes_.count() > 1 && tensor.cut.is_whole() && !alone;
    };
    const auto is_shared = [&](const PlacedTensor& tensor) {
        const bool key_value = lane_cut(tensor.linear) == LaneCut::key_value_heads;
        return lanes_.key_value_sharers->size() > 1 && key_value && !tensor.cut.is_whole();
    };
    const std::span<const PlacedTensor> tensors = state.layout.tensors(Part::gradients);
    state.writes_over = std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
        return is_written_by_every_backward(job, tensor);
    });
    state.partial = ranges_of(tensors, is_partial);
    state.shared = ranges_of(tensors, is_shared);
    state.counted = ranges_of(tensors, [&](const PlacedTensor& tensor) {
        if (is_partial(tensor)) return lanes_.is_first();
        return !is_shared(tensor) || lanes_.key_value_sharers->index() == 0;
    });
}

/// Rows of an embedding and experts have gradients where there are tokens, the head adds to its own
/// several times in a backward, and so do operators of other tensors than A and B.
bool AdapterBank::is_written_by_every_backward(const AdapterJob& job,
                                               const PlacedTensor& tensor) const {
    const TensorRole role = job.form.tensors[tensor.of_form].role;
    const bool outer = is_outer(tensor.linear);
    return (role == TensorRole::a || role == TensorRole::b) && !job.form.projects && !outer &&
           tensor.expert == no_expert;
}

void AdapterBank::reside(AdapterId adapter) {
    State& state = states_[index(adapter)];
    LORATRAIN_CHECK(state.residence == Residence::absent || state.residence == Residence::suspended,
                    "adapter ", number(adapter), " cannot become resident");
    for (const Part part : all_parts) {
        const std::uint64_t bytes = part == Part::parameters  ? state.planned.parameter_bytes()
                                    : part == Part::gradients ? state.planned.gradient_bytes()
                                                              : state.planned.moment_bytes();
        state.arrays[index_of(part)] = backend_.allocate(bytes, "adapter state");
    }
    if (state.planned.norms > 0) {
        state.norms = backend_.allocate(state.planned.norm_bytes(), "norms of adapters");
    }
    const AdapterJob& job = job_.adapter(adapter);
    if (job.form.projects) state.projected = {job, model_, lane(), backend_};
    if (state.residence == Residence::absent) {
        initialise(adapter);
    } else {
        for (const Part part : suspended_parts) {
            backend_.upload(state.array(part), state.suspended.arrays[index_of(part)].data(),
                            state.bytes(part));
        }
    }
    state.residence = Residence::resident;
    set_counters(adapter, state.suspended.counters);
    state.suspended = {};
    state.stale = false;
    ++state.version;
    backend_.synchronize();
}

void AdapterBank::suspend(AdapterId adapter) {
    check_gradients_are_zero(adapter);
    State& state = states_[index(adapter)];
    state.suspended.counters = counters(adapter);
    for (const Part part : suspended_parts) {
        std::vector<float>& values = state.suspended.arrays[index_of(part)];
        values.resize(state.words(part));
        backend_.download(values.data(), state.array(part), state.bytes(part));
    }
    free_arrays(state);
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

void AdapterBank::release(AdapterId adapter, Residence then) {
    State& state = states_[index(adapter)];
    free_arrays(state);
    state.suspended = {};
    state.residence = then;
}

void AdapterBank::free_arrays(State& state) const {
    for (Buffer& buffer : state.arrays) buffer = {};
    state.norms = {};
    state.projected = {};
}

std::span<float> AdapterBank::gradient_array(AdapterId adapter) {
    zero_stale_gradients(adapter);
    const State& state = states_[index(adapter)];
    return {state.array(Part::gradients), state.count(Part::gradients)};
}

void AdapterBank::zero_stale_gradients(AdapterId adapter) {
    const State& state = resident(adapter);
    if (!state.stale) return;
    states_[index(adapter)].stale = false;
    backend_.zero(state.array(Part::gradients), state.bytes(Part::gradients));
}

void AdapterBank::check_gradients_are_zero(AdapterId adapter) const {
    const std::vector<float> values = numbers(adapter, Part::gradients);
    LORATRAIN_CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0F; }),
                    "adapter ", number(adapter), " is in the middle of a global batch");
}

const AdapterBank::State& AdapterBank::resident(AdapterId adapter) const {
    const State& state = states_[index(adapter)];
    LORATRAIN_CHECK(state.residence == Residence::resident, "adapter ", number(adapter),
                    " is not in backend memory");
    return state;
}

LoraSlot AdapterBank::slot(AdapterId adapter, std::int32_t layer, Linear linear) const {
    const State& state = resident(adapter);
    const AdapterJob& job = job_.adapter(adapter);
    const std::int32_t model_layer = stage_.first_layer + layer;
    LoraSlot slot;
    if (job.form.projects) {
        if (!projects(adapter, layer, linear)) return slot;
        const ProjectedFactors::Place place = state.projected.at(linear);
        slot.a = place.a;
        slot.b = place.product;
        slot.grad_b = place.gradient;
    } else {
        const PlacedTensor* a = state.layout.find(model_layer, linear, TensorRole::a);
        const PlacedTensor* b = state.layout.find(model_layer, linear, TensorRole::b);
        if (a == nullptr || b == nullptr) return slot;
        slot.a = state.array(Part::parameters) + a->range.first;
        slot.b = state.array(Part::parameters) + b->range.first;
        slot.grad_a = state.gradient(*a);
        slot.grad_b = state.gradient(*b);
        slot.begins_gradients = state.stale;
    }
    slot.rank = job.rank(model_layer, linear);
    slot.scale = static_cast<float>(job.scaling(model_layer, linear));
    if (const PlacedTensor* m = state.layout.find(model_layer, linear, TensorRole::magnitude)) {
        const auto place =
            static_cast<std::size_t>(m - state.layout.tensors(Part::parameters).data());
        slot.magnitude = state.array(Part::parameters) + m->range.first;
        slot.grad_magnitude = state.gradient(*m);
        slot.squares = state.norms.as<float>() + state.first_norm[place];
    }
    if (const PlacedTensor* start = state.layout.find(model_layer, linear, TensorRole::start_a)) {
        const PlacedTensor* start_b = state.layout.find(model_layer, linear, TensorRole::start_b);
        slot.start_a = state.array(Part::parameters) + start->range.first;
        slot.start_b = state.array(Part::parameters) + start_b->range.first;
    }
    if (linear != Linear::embedding) slot.dropout = dropout_threshold(job.lora_dropout);
    if (slot.dropout != 0) {
        slot.dropout_key =
            tensor_key(job.seed, job.random_name(), module_path(model_layer, linear));
        slot.dropout_column =
            static_cast<std::int32_t>(lane_slice(model_, linear, lane()).in.first);
    }
    return slot;
}

VeraGradients AdapterBank::projected(AdapterId adapter, std::int32_t layer, Linear linear) const {
    const State& state = resident(adapter);
    const auto tensor = [&](TensorRole role) -> const PlacedTensor& {
        return *state.layout.find(stage_.first_layer + layer, linear, role);
    };
    const PlacedTensor& d = tensor(TensorRole::scale_d);
    const PlacedTensor& b = tensor(TensorRole::scale_b);
    const ProjectedFactors::Place place = state.projected.at(linear);
    VeraGradients op;
    op.of.b = place.b;
    op.of.scale_d = state.array(Part::parameters) + d.range.first;
    op.of.scale_b = state.array(Part::parameters) + b.range.first;
    op.of.product = place.product;
    op.of.out = b.range.count;
    op.of.rank = static_cast<std::int32_t>(d.range.count);
    op.gradient = place.gradient;
    op.grad_d = state.gradient(d);
    op.grad_b = state.gradient(b);
    return op;
}

TokenSlot AdapterBank::token_slot(AdapterId adapter) const {
    const State& state = resident(adapter);
    const PlacedTensor* rows =
        state.layout.find(embedding_layer, Linear::embedding, TensorRole::token_rows);
    if (rows == nullptr) return {};
    return {state.tokens, state.array(Part::parameters) + rows->range.first, state.gradient(*rows)};
}

bool AdapterBank::has(AdapterId adapter, TensorRole role) const {
    const std::vector<FormTensor>& tensors = job_.adapter(adapter).form.tensors;
    return std::any_of(tensors.begin(), tensors.end(),
                       [role](const FormTensor& tensor) { return tensor.role == role; });
}

bool AdapterBank::projects(AdapterId adapter, std::int32_t layer, Linear linear) const {
    const AdapterLayout& layout = states_[index(adapter)].layout;
    return layout.find(stage_.first_layer + layer, linear, TensorRole::scale_b) != nullptr;
}

bool AdapterBank::targets_group(AdapterId adapter, std::int32_t layer, LinearGroup group) const {
    const LinearGroupShape shape = group_shape(model_, stage_.first_layer + layer, group);
    return std::any_of(shape.linears.begin(), shape.linears.begin() + shape.count, [&](Linear l) {
        return job_.adapter(adapter).targets_linear(stage_.first_layer + layer, l);
    });
}

void AdapterBank::sum_over_lanes(AdapterId adapter) {
    zero_stale_gradients(adapter);
    const State& state = resident(adapter);
    const auto sum = [&](RankGroup& group, const ArrayRange& range) {
        group.all_reduce(
            matrix(state.array(Part::gradients) + range.first, DType::f32, 1, range.count));
    };
    for (const ArrayRange& range : state.partial) sum(*lanes_.all, range);
    for (const ArrayRange& range : state.shared) sum(*lanes_.key_value_sharers, range);
}

void AdapterBank::sum_squares(AdapterId adapter, double* result) {
    zero_stale_gradients(adapter);
    const State& state = resident(adapter);
    sum_own_squares(state, result);
    if (lanes_.count() == 1) return;
    auto* of_lanes = lane_squares_.as<double>() + 1;
    lanes_.all->all_gather(result, sizeof(double), of_lanes);
    constexpr std::int32_t here = 0;
    for (std::int32_t lane = 0; lane < lanes_.count(); ++lane) {
        backend_.move_doubles({result, of_lanes, {&here, 1}, {&lane, 1}, lane > 0});
    }
}

void AdapterBank::sum_own_squares(const State& state, double* result) const {
    const auto sum = [&](const ArrayRange& range, double* target) {
        backend_.sum_squares({state.array(Part::gradients) + range.first, range.count, target});
    };
    sum(state.counted.empty() ? ArrayRange{} : state.counted.front(), result);
    constexpr std::int32_t here = 0;
    for (std::size_t i = 1; i < state.counted.size(); ++i) {
        auto* term = lane_squares_.as<double>();
        sum(state.counted[i], term);
        backend_.move_doubles({result, term, {&here, 1}, {&here, 1}, true});
    }
}

void AdapterBank::step(AdapterId adapter, double learning_rate, const double* grad_sumsq) {
    zero_stale_gradients(adapter);
    State& state = states_[index(adapter)];
    ++state.version;
    state.stale = state.writes_over;
    const AdapterJob& job = job_.adapter(adapter);
    AdamW op;
    op.zeroes = !state.writes_over;
    op.beta1 = job.adam_beta1;
    op.beta2 = job.adam_beta2;
    op.epsilon = job.adam_epsilon;
    op.weight_decay = job.weight_decay;
    op.max_grad_norm = job.max_grad_norm;
    op.grad_sumsq = grad_sumsq;
    op.applied_steps = counters_of(adapter);
    op.skipped_steps = op.applied_steps + 1;
    for (const MomentLayout::Run& run : state.moments.runs()) {
        AdamW8bit coded;
        op.parameters = state.array(Part::parameters) + run.range.first;
        op.gradients = state.array(Part::gradients) + run.range.first;
        op.count = run.range.count;
        op.learning_rate = learning_rate * job.form.rates[run.rate_group];
        op.counts = &run == &state.moments.runs().front();
        coded.step = op;
        state.moments.place(run, state.array(Part::first_moments),
                            state.array(Part::second_moments), coded);
        if (run.coded) {
            backend_.adamw_8bit(coded);
        } else {
            backend_.adamw(coded.step);
        }
    }
}

}  // namespace loratrain
