#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "adapter/adapter_bank.h"
#include "adapter/start_factors.h"
#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/threads.h"
#include "io/adapters/adapter_file.h"
#include "io/tensor_names.h"

/// What adapters begin with.

namespace loratrain {

namespace {

std::uint64_t random_key(const AdapterJob& adapter, const PlacedTensor& tensor) {
    return tensor_key(adapter.seed, adapter.random_name(),
                      cat(module_path(tensor.layer, tensor.linear, tensor.expert), ".",
                          on_linear(adapter.form.tensors[tensor.of_form], tensor.linear).name));
}

/// For weights that are not on the CPU backend.
std::unique_ptr<Backend> host_backend() {
    constexpr unsigned most_threads = 16;
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1U, most_threads);
    return make_backend("cpu", {static_cast<int>(threads)});
}

/// [n, rows] of [rows, n].
std::vector<float> transposed(const std::vector<float>& values, std::int64_t rows) {
    std::vector<float> result(values.size());
    const std::size_t count = static_cast<std::size_t>(rows);
    const std::size_t n = values.size() / count;
    for (std::size_t i = 0; i < values.size(); ++i) result[i % n * count + i / n] = values[i];
    return result;
}

/// Initial::uniform, of a tensor whose linear has so many inputs.
DrawUniform uniform_start(std::uint64_t key, const TensorCut& cut, std::int64_t in, float* values) {
    const Slice own = cut.own.only();  // of A along the inputs, which are one part
    DrawUniform draw;
    draw.values = values;
    draw.rows = cut.outer;
    draw.cols = own.count * cut.inner;
    draw.first = own.first * cut.inner;
    draw.stride = cut.extent * cut.inner;
    draw.key = key;
    draw.bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
    return draw;
}

/// N(0, deviation^2): on the host, as devices have other logarithms.
std::vector<float> normal_start(std::uint64_t key, const TensorCut& cut, float deviation) {
    constexpr std::int64_t work_per_value = 16;  // beside copying one
    std::vector<float> values(static_cast<std::size_t>(cut.count()));
    share_rows(cut.count(), work_per_value, [&](std::int64_t begin, std::int64_t end) {
        cut.for_each_run(begin, end, [&](const TensorCut::Run& run) {
            const std::span<float> part(values.data() + run.in_part,
                                        static_cast<std::size_t>(run.count));
            normal_floats(key, static_cast<std::uint64_t>(run.in_whole), part);
            for (float& value : part) value *= deviation;
        });
    });
    return values;
}

}  // namespace

void AdapterBank::initialise(AdapterId adapter) {
    const AdapterJob& job = job_.adapter(adapter);
    if (has_residual_start(job.form)) return start_from_weights(adapter);
    if (!job.init_from.empty()) return read_parameters(adapter, job.init_from);
    const State& state = states_[index(adapter)];
    for (const PlacedTensor& tensor : state.layout.tensors(Part::parameters)) {
        start(state, job, tensor);
    }
}

/// An array is allocated with zeros.
void AdapterBank::start(const State& state, const AdapterJob& job,
                        const PlacedTensor& tensor) const {
    const FormTensor form = on_linear(job.form.tensors[tensor.of_form], tensor.linear);
    const std::uint64_t key = random_key(job, tensor);
    switch (form.initial) {
        case Initial::uniform:
            return backend_.draw_uniform(uniform_start(
                key, tensor.cut, target_of(model_, tensor.layer, tensor.linear).shape.in,
                state.array(Part::parameters) + tensor.range.first));
        case Initial::normal:
            return put(state, tensor, normal_start(key, tensor.cut, 1.0F));
        case Initial::gaussian: {
            const auto rank = static_cast<float>(job.rank(tensor.layer, tensor.linear));
            return put(state, tensor, normal_start(key, tensor.cut, 1.0F / rank));
        }
        case Initial::constant:
            return put(state, tensor,
                       std::vector<float>(static_cast<std::size_t>(tensor.range.count),
                                          static_cast<float>(form.value)));
        case Initial::norms:
            return put(state, tensor,
                       base_.row_norms(tensor.layer - stage_.first_layer, tensor.linear));
        case Initial::rows:
            return put(state, tensor, base_.token_rows(job.trainable_token_indices));
        case Initial::zeros:
        case Initial::pissa:
        case Initial::olora:
            return;
    }
}

void AdapterBank::start_from_weights(AdapterId adapter) {
    const AdapterJob& job = job_.adapter(adapter);
    const State& state = states_[index(adapter)];
    std::unique_ptr<Backend> own;
    if (backend_.native_stream() != nullptr) own = host_backend();
    for (const PlacedTensor& a : state.layout.tensors(Part::parameters)) {
        const FormTensor& form = job.form.tensors[a.of_form];
        if (form.role != TensorRole::a) continue;
        StartRule rule{form.initial, job.pissa_niter};
        rule.rank = job.rank(a.layer, a.linear);
        rule.scaling = job.scaling(a.layer, a.linear);
        rule.key = random_key(job, a);
        const LinearShape shape = linear_shape(model_, a.linear);
        const StartFactors start =
            start_factors(rule, shape, base_.weights(a.layer, a.linear), own ? *own : backend_);
        const auto tensor = [&](TensorRole role) -> const PlacedTensor& {
            return *state.layout.find(a.layer, a.linear, role);
        };
        const auto put_cut = [&](const PlacedTensor& to, const std::vector<float>& whole) {
            put(state, to, cut_out(to.cut, whole));
        };
        put_cut(a, start.a);
        put_cut(tensor(TensorRole::start_a), start.a);
        put_cut(tensor(TensorRole::start_b), start.b);
        put_cut(tensor(TensorRole::b), transposed(start.b, rule.rank));
    }
}

void AdapterBank::read_parameters(AdapterId adapter, const std::string& directory) {
    const AdapterJob& job = job_.adapter(adapter);
    State& state = states_[index(adapter)];
    const AdapterFile file(directory, job, model_);
    for (const PlacedTensor& tensor : state.layout.tensors(Part::parameters)) {
        const FormTensor& form = job.form.tensors[tensor.of_form];
        put(state, tensor,
            cut_out(tensor.cut, file.read(tensor.layer, tensor.linear, form, tensor.expert)));
    }
    ++state.version;
}

void AdapterBank::put(const State& state, const PlacedTensor& tensor,
                      const std::vector<float>& cut) const {
    backend_.upload(state.array(Part::parameters) + tensor.range.first, cut.data(),
                    cut.size() * sizeof(float));
}

}  // namespace loratrain
