#include <utility>

#include "adapter/adapter_bank.h"
#include "base/error.h"
#include "base/pages.h"

/// Values of adapters on the host: for exports, checkpoints and what is read from them.

namespace loratrain {

std::vector<float> AdapterBank::numbers(AdapterId adapter, Part part) const {
    const State& state = states_[index(adapter)];
    const bool on_host = state.residence == Residence::suspended;
    if (part == Part::gradients && (on_host || state.stale)) {
        return std::vector<float>(state.count(part));
    }
    std::vector<float> array;
    if (on_host) {
        array = state.suspended.arrays[index_of(part)];
    } else {
        reserve_large(array, state.words(part));
        array.resize(state.words(part));
        backend_.download(array.data(), resident(adapter).array(part), state.bytes(part));
    }
    const bool coded =
        part != Part::parameters && part != Part::gradients && state.moments.any_coded();
    if (coded) return state.moments.decoded(part, array);
    return array;
}

std::vector<NamedTensor> AdapterBank::download(AdapterId adapter, Part part) const {
    const std::vector<float> values = numbers(adapter, part);
    std::vector<NamedTensor> tensors;
    for (const PlacedTensor& tensor : states_[index(adapter)].layout.tensors(part)) {
        tensors.push_back(named_tensor(job_.adapter(adapter), tensor));
        const auto first = values.begin() + tensor.range.first;
        tensors.back().values.assign(first, first + tensor.range.count);
    }
    return tensors;
}

void AdapterBank::upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors) {
    State& state = states_[index(adapter)];
    std::vector<float> values;
    for (const NamedTensor& tensor : tensors) {
        values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
    LORATRAIN_CHECK(values.size() == state.count(part), "adapter state has ", values.size(),
                    " values instead of ", state.count(part));
    const bool moments = part != Part::parameters && part != Part::gradients;
    if (moments && state.moments.any_coded()) values = state.moments.encoded(part, values);
    ++state.version;
    if (state.residence == Residence::resident) {
        if (part == Part::gradients) state.stale = false;
        backend_.upload(state.array(part), values.data(), state.bytes(part));
        return;
    }
    LORATRAIN_CHECK(part != Part::gradients && state.residence != Residence::released, "adapter ",
                    number(adapter), " is not in backend memory");
    for (const Part other : suspended_parts) {
        state.suspended.arrays[index_of(other)].resize(state.words(other));
    }
    state.suspended.arrays[index_of(part)] = std::move(values);
    state.residence = Residence::suspended;
}

void AdapterBank::upload_cut(AdapterId adapter, Part part, std::vector<NamedTensor> whole) {
    const std::span<const PlacedTensor> tensors = states_[index(adapter)].layout.tensors(part);
    LORATRAIN_CHECK(whole.size() == tensors.size(), whole.size(), " tensors instead of ",
                    tensors.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
        if (tensors[i].cut.is_whole()) continue;
        whole[i].values = cut_out(tensors[i].cut, whole[i].values);
        whole[i].shape = tensors[i].shape;
    }
    upload(adapter, part, whole);
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
