#include "io/adapters/exported_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/tensor.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

const FormTensor& of_role(const AdapterForm& form, TensorRole role) {
    return *std::find_if(form.tensors.begin(), form.tensors.end(),
                         [role](const FormTensor& tensor) { return tensor.role == role; });
}

/// [rank, in] twice, one below the other.
void append_rows(NamedTensor& a, const NamedTensor& start) {
    a.shape[0] *= 2;
    a.values.insert(a.values.end(), start.values.begin(), start.values.end());
}

/// [out, rank] beside -[rank, out] transposed.
void append_columns(NamedTensor& b, const NamedTensor& start) {
    const auto out = static_cast<std::size_t>(b.shape[0]);
    const auto rank = static_cast<std::size_t>(b.shape[1]);
    std::vector<float> values;
    values.reserve(2 * b.values.size());
    for (std::size_t row = 0; row < out; ++row) {
        const auto own = b.values.begin() + static_cast<std::ptrdiff_t>(row * rank);
        values.insert(values.end(), own, own + static_cast<std::ptrdiff_t>(rank));
        for (std::size_t i = 0; i < rank; ++i) values.push_back(-start.values[i * out + row]);
    }
    b.shape[1] *= 2;
    b.values = std::move(values);
}

/// Adds the projections of VeRA that `tensors` lacks.
void add_projections(const AdapterJob& adapter, const ModelSpec& model,
                     std::vector<NamedTensor>& tensors) {
    for (NamedTensor& projection : vera_projections(adapter, model)) {
        const bool known =
            std::any_of(tensors.begin(), tensors.end(),
                        [&](const NamedTensor& tensor) { return tensor.name == projection.name; });
        if (!known) tensors.push_back(std::move(projection));
    }
}

AdapterJob job_of_residual_start(const AdapterJob& adapter) {
    if (!has_residual_start(adapter.form)) return adapter;
    AdapterJob plain = adapter;
    const double factor = adapter.use_rslora ? std::sqrt(2.0) : 2.0;
    plain.r *= 2;
    plain.lora_alpha *= factor;
    plain.init_lora_weights = Initial::uniform;
    plain.pissa_niter.reset();
    if (adapter.modules) {
        ModuleKeys keys = adapter.modules->keys();
        for (auto& [pattern, rank] : keys.rank_pattern) rank *= 2;
        for (auto& [pattern, alpha] : keys.alpha_pattern) alpha *= factor;
        plain.modules = std::make_shared<const ModuleTable>(keys, adapter.modules->targets());
    }
    plain.form = form_of(plain);
    return plain;
}

bool is_folded(const AdapterJob& adapter) {
    return adapter.plain_export && !adapter.is_vera();
}

/// Of modules that no pattern names.
double usual_scaling(const AdapterJob& adapter) {
    const double r = adapter.r;
    return adapter.lora_alpha / (adapter.use_rslora ? std::sqrt(r) : r);
}

AdapterJob folded_job(const AdapterJob& adapter) {
    AdapterJob folded = adapter;
    folded.r = adapter.largest_rank();
    folded.lora_alpha = usual_scaling(adapter) * folded.r;
    folded.use_rslora = false;
    if (adapter.modules) {
        ModuleKeys keys = adapter.modules->keys();
        keys.rank_pattern.clear();
        keys.alpha_pattern.clear();
        folded.modules = std::make_shared<const ModuleTable>(keys, adapter.modules->targets());
    }
    folded.form = form_of(folded);
    return folded;
}

void pad_rows(NamedTensor& a, std::int64_t rank) {
    a.values.resize(static_cast<std::size_t>(rank * a.shape[1]), 0.0F);
    a.shape[0] = rank;
}

/// B times `factor`.
void pad_columns(NamedTensor& b, std::int64_t rank, double factor) {
    const auto before = static_cast<std::size_t>(b.shape[1]);
    std::vector<float> values(static_cast<std::size_t>(b.shape[0] * rank), 0.0F);
    for (std::size_t i = 0; i < b.values.size(); ++i) {
        values[i / before * static_cast<std::size_t>(rank) + i % before] =
            static_cast<float>(b.values[i] * factor);
    }
    b.shape[1] = rank;
    b.values = std::move(values);
}

/// Of adapter `of`, which has no residual start.
void fold(const AdapterJob& of, const ModelSpec& model, std::vector<NamedTensor>& tensors) {
    const std::int64_t rank = of.largest_rank();
    std::map<std::string, NamedTensor*> by_name;
    for (NamedTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
    const auto fold_one = [&](std::int64_t layer, Linear linear, std::int32_t expert) {
        const auto tensor = [&](TensorRole role) {
            const auto name = peft_tensor_name(layer, linear, of_role(of.form, role), expert);
            const auto found = by_name.find(name);
            return found == by_name.end() ? nullptr : found->second;
        };
        if (NamedTensor* a = tensor(TensorRole::a)) pad_rows(*a, rank);
        if (NamedTensor* b = tensor(TensorRole::b)) {
            pad_columns(*b, rank, of.scaling(layer, linear) / usual_scaling(of));
        }
    };
    const auto fold_module = [&](std::int64_t layer, Linear linear) {
        if (target_rank(of, model, layer, linear) == 0) return;
        const TargetExperts experts = target_of(model, layer, linear).experts;
        for (std::int32_t e = experts.first; e < experts.first + experts.count; ++e) {
            fold_one(layer, linear, e);
        }
    };
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) fold_module(layer, static_cast<Linear>(i));
    }
    for (const Linear linear : outer_linears) fold_module(outer_layer(model, linear), linear);
}

void round_to_bf16(std::vector<NamedTensor>& tensors) {
    for (NamedTensor& tensor : tensors) {
        for (float& value : tensor.values) value = to_float(to_bfloat16(value));
    }
}

std::vector<NamedTensor> tensors_of_residual_start(const AdapterJob& adapter,
                                                   std::vector<NamedTensor> tensors) {
    if (!has_residual_start(adapter.form)) return tensors;
    const std::string a = of_role(adapter.form, TensorRole::a).peft_suffix;
    const std::string b = of_role(adapter.form, TensorRole::b).peft_suffix;
    const std::string start_a = of_role(adapter.form, TensorRole::start_a).peft_suffix;
    const std::string start_b = of_role(adapter.form, TensorRole::start_b).peft_suffix;
    std::map<std::string, const NamedTensor*> by_name;
    for (const NamedTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
    const auto beside = [&](const NamedTensor& tensor, const std::string& suffix,
                            const std::string& other) -> const NamedTensor& {
        const std::string module = tensor.name.substr(0, tensor.name.size() - suffix.size());
        const auto found = by_name.find(module + other);
        LORATRAIN_CHECK(found != by_name.end(), tensor.name, " without what it started with");
        return *found->second;
    };
    std::vector<NamedTensor> exported;
    for (const NamedTensor& tensor : tensors) {
        if (tensor.name.ends_with(a)) {
            append_rows(exported.emplace_back(tensor), beside(tensor, a, start_a));
        } else if (tensor.name.ends_with(b)) {
            append_columns(exported.emplace_back(tensor), beside(tensor, b, start_b));
        }
    }
    return exported;
}

}  // namespace

AdapterJob exported_job(const AdapterJob& adapter) {
    const AdapterJob plain = job_of_residual_start(adapter);
    return is_folded(adapter) ? folded_job(plain) : plain;
}

std::vector<NamedTensor> exported_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                          std::vector<NamedTensor> tensors) {
    if (adapter.form.projects && adapter.save_projection) add_projections(adapter, model, tensors);
    std::vector<NamedTensor> exported = tensors_of_residual_start(adapter, std::move(tensors));
    if (is_folded(adapter)) fold(job_of_residual_start(adapter), model, exported);
    if (adapter.export_dtype == DType::bf16) round_to_bf16(exported);
    if (!has_other_names(model)) return exported;
    for (NamedTensor& tensor : exported) tensor.name = peft_name_in_files(model, tensor.name);
    return exported;
}

namespace {

/// torch.Tensor.uniform_ on a CPU: 24 bits of the Mersenne Twister for a value.
void draw_kaiming_uniform(std::mt19937& generator, NamedTensor& tensor) {
    constexpr std::uint32_t mask = (1U << 24U) - 1;
    constexpr double step = 1.0 / (1U << 24U);
    const double deviation = std::sqrt(2.0) / std::sqrt(static_cast<double>(tensor.shape[1]));
    const auto high = static_cast<float>(std::sqrt(3.0) * deviation);
    const float low = -high;
    const float width = high - low;
    tensor.values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    for (float& value : tensor.values) {
        const double part = static_cast<double>(generator() & mask) * step;
        value = static_cast<float>(part * width + low);
    }
}

}  // namespace

LinearShape largest_target(const AdapterJob& adapter, const ModelSpec& model) {
    LinearShape largest{};
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (!adapter.targets_linear(layer, linear)) continue;
            const LinearShape shape = linear_shape(model, linear);
            largest.in = std::max(largest.in, shape.in);
            largest.out = std::max(largest.out, shape.out);
        }
    }
    return largest;
}

std::vector<NamedTensor> vera_projection_shapes(const AdapterJob& adapter, const ModelSpec& model) {
    if (!adapter.form.projects) return {};
    const LinearShape largest = largest_target(adapter, model);
    return {{"base_model.vera_A", {adapter.r, largest.in}, {}},
            {"base_model.vera_B", {largest.out, adapter.r}, {}}};
}

std::vector<NamedTensor> vera_projections(const AdapterJob& adapter, const ModelSpec& model) {
    std::vector<NamedTensor> projections = vera_projection_shapes(adapter, model);
    std::mt19937 generator(static_cast<std::uint32_t>(adapter.projection_prng_key));
    for (NamedTensor& tensor : projections) draw_kaiming_uniform(generator, tensor);
    return projections;
}

}  // namespace loratrain
