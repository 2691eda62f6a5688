#include "adapter/adapter_layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/tensor.h"
#include "io/tensor_names.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// That places are kept for in a layer, with the outer ones.
constexpr int linears = linear_count + static_cast<int>(outer_linears.size());

/// Targeted linears of a layer and tensors of the form for which `wanted` holds, in the order of
/// the arrays.
template <class Wanted, class Visit>
void for_each_tensor(const AdapterJob& adapter, const ModelSpec& model, std::int32_t layer,
                     Wanted wanted, Visit visit) {
    for (const Linear linear : outer_linears) {
        if (layer != outer_layer(model, linear)) continue;
        for (std::size_t t = 0; t < adapter.form.tensors.size(); ++t) {
            const FormTensor& tensor = adapter.form.tensors[t];
            const bool has = has_tensor(adapter, model, layer, linear, tensor);
            if (has && wanted(tensor)) visit(linear, t);
        }
        return;
    }
    for (const LinearGroup group : linear_groups) {
        const std::vector<Linear> targets = group_targets(model, group);
        for (std::size_t t = 0; t < adapter.form.tensors.size(); ++t) {
            if (!wanted(adapter.form.tensors[t])) continue;
            for (const Linear linear : targets) {
                if (has_tensor(adapter, model, layer, linear, adapter.form.tensors[t])) {
                    visit(linear, t);
                }
            }
        }
    }
}

/// Of a tensor [..., axis that is cut, ...] as blocks [outer, extent, inner].
TensorCut cut_of(const FormTensor& tensor, std::int64_t rank, const LinearShape& whole,
                 const LinearSlice& slice) {
    const std::vector<std::int64_t> shape = tensor_shape(tensor, rank, whole);
    TensorCut cut = whole_tensor(element_count(shape));
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const Slices own = tensor.axes[i] == Axis::in    ? Slices(slice.in)
                           : tensor.axes[i] == Axis::out ? slice.out
                                                         : Slices({0, shape[i]});
        if (own.count() == shape[i]) continue;
        const auto axis = shape.begin() + static_cast<std::ptrdiff_t>(i);
        cut = {element_count({shape.begin(), axis}), shape[i],
               element_count({axis + 1, shape.end()}), own};
    }
    return cut;
}

}  // namespace

AdapterLayout::AdapterLayout(const AdapterJob& adapter, const ModelSpec& model,
                             const LayerRange& layers, const TensorLane& lane)
    : layers_(layers) {
    const AdapterForm& form = adapter.form;
    for (const FormTensor& tensor : form.tensors) {
        LORATRAIN_CHECK(tensor.rate_group < form.rates.size(), tensor.name, " has no rate");
        roles_.push_back(tensor.role);
    }
    index_.assign(static_cast<std::size_t>(layers.count) * linears * roles_.size(), -1);
    const auto place_all = [&](auto wanted) {
        for (std::int32_t l = layers.first; l < layers.first + layers.count; ++l) {
            for_each_tensor(adapter, model, l, wanted, [&](Linear linear, std::size_t t) {
                const LayerLinear target = target_of(model, l, linear);
                const LinearShape& whole = target.shape;
                const int rank = adapter.rank(l, linear);
                const TargetExperts& experts = target.experts;
                for (std::int32_t e = experts.first; e < experts.first + experts.count; ++e) {
                    const LinearSlice slice = lane_slice(model, linear, target, e, lane);
                    const LinearShape own{slice.in.count, slice.out.count()};
                    place({l,
                           linear,
                           e,
                           t,
                           tensor_shape(form.tensors[t], rank, own),
                           {},
                           cut_of(form.tensors[t], rank, whole, slice)});
                }
            });
        }
    };
    for (std::size_t group = 0; group < form.rates.size(); ++group) {
        place_all([&](const FormTensor& t) { return t.trained && t.rate_group == group; });
        rate_groups_.push_back({trained_, total_ - trained_});
        trained_ = total_;
    }
    trained_tensors_ = tensors_.size();
    place_all([](const FormTensor& t) { return !t.trained; });
}

void AdapterLayout::place(PlacedTensor tensor) {
    std::int32_t& first = index_[slot(tensor.layer, tensor.linear, tensor.of_form)];
    if (first < 0) first = static_cast<std::int32_t>(tensors_.size());
    tensor.range = {total_, element_count(tensor.shape)};
    total_ += tensor.range.count;
    tensors_.push_back(std::move(tensor));
}

std::size_t AdapterLayout::slot(std::int32_t layer, Linear linear, std::size_t of_form) const {
    const auto row = static_cast<std::size_t>(layer - layers_.first) * linears +
                     static_cast<std::size_t>(linear);
    return row * roles_.size() + of_form;
}

const PlacedTensor* AdapterLayout::find(std::int32_t layer, Linear linear, TensorRole role) const {
    if (layer < layers_.first || layer >= layers_.first + layers_.count) return nullptr;
    const auto found = std::find(roles_.begin(), roles_.end(), role);
    if (found == roles_.end()) return nullptr;
    const auto of_form = static_cast<std::size_t>(found - roles_.begin());
    const std::int32_t index = index_[slot(layer, linear, of_form)];
    return index < 0 ? nullptr : &tensors_[static_cast<std::size_t>(index)];
}

NamedTensor named_tensor(const AdapterJob& adapter, const PlacedTensor& tensor) {
    const FormTensor& form = adapter.form.tensors[tensor.of_form];
    return {peft_tensor_name(tensor.layer, tensor.linear, form, tensor.expert), tensor.shape, {}};
}

std::vector<NamedTensor> adapter_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                         const LayerRange& layers, StatePart part) {
    const AdapterLayout layout(adapter, model, layers);
    std::vector<NamedTensor> tensors;
    for (const PlacedTensor& tensor : layout.tensors(part)) {
        tensors.push_back(named_tensor(adapter, tensor));
    }
    return tensors;
}

}  // namespace loratrain
