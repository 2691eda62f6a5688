#include "train/checkpoint/stored_adapter.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/tensor.h"
#include "io/adapters/exported_adapter.h"
#include "io/capped_problems.h"

namespace loratrain {

namespace {

constexpr const char* applied_key = "applied_steps";
constexpr const char* skipped_key = "skipped_steps";

/// InputError for what is no count.
std::int64_t counter(const SafetensorsFile& file, const char* key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) throw InputError(file.path(), cat("has no ", key));
    const std::string& text = found->second;
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = result.ec == std::errc{} && result.ptr == text.data() + text.size();
    if (!whole || value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
        throw InputError(file.path(), cat(key, " is '", text, "', must be a number of steps"));
    }
    return value;
}

AdapterBank::Counters counters_of(const SafetensorsFile& file) {
    return {counter(file, applied_key), counter(file, skipped_key)};
}

/// The tensors without values, under the names that they have in the file.
std::vector<NamedTensor> stored_tensors(const AdapterJob& job, const ModelSpec& model,
                                        const LayerRange& layers, const StoredPart& part) {
    std::vector<NamedTensor> tensors = adapter_tensors(job, model, layers, part.part);
    for (NamedTensor& tensor : tensors) tensor.name += part.suffix;
    return tensors;
}

void check_tensor(const SafetensorsFile& file, const NamedTensor& tensor,
                  CappedProblems& problems) {
    const std::string where = cat(file.path(), ":", tensor.name);
    const auto found = file.entries().find(tensor.name);
    if (found == file.entries().end()) {
        problems.add(where, "tensor is missing");
    } else if (found->second.shape != tensor.shape || found->second.dtype != "F32") {
        problems.add(where, cat("is ", found->second.dtype, " ", shape_text(found->second.shape),
                                ", must be F32 ", shape_text(tensor.shape)));
    }
}

/// That the file has the tensors of these parts, and `others`, and no more.
void check_tensors(const SafetensorsFile& file, const AdapterJob& adapter, const ModelSpec& model,
                   std::span<const StoredPart> parts, CappedProblems& problems,
                   const std::vector<NamedTensor>& others = {}) {
    std::size_t wanted = others.size();
    for (const NamedTensor& tensor : others) check_tensor(file, tensor, problems);
    for (const StoredPart& part : parts) {
        for (const NamedTensor& tensor :
             stored_tensors(adapter, model, all_state_layers(model), part)) {
            check_tensor(file, tensor, problems);
            ++wanted;
        }
    }
    if (problems.empty() && file.entries().size() != wanted) {
        problems.add(file.path(),
                     cat("has ", file.entries().size(), " tensors, must have ", wanted));
    }
}

}  // namespace

std::string stored_adapter_name(const AdapterJob& adapter) {
    return adapter.name + ".safetensors";
}

std::string write_stored_adapter(const std::string& path, const std::vector<TensorSource>& tensors,
                                 const AdapterBank::Counters& counters) {
    return write_safetensors(path, tensors,
                             {{applied_key, std::to_string(counters.applied_steps)},
                              {skipped_key, std::to_string(counters.skipped_steps)}});
}

void check_stored_adapter(const std::string& path, const AdapterJob& adapter,
                          const ModelSpec& model) {
    const SafetensorsFile file(path);
    CappedProblems problems(path);
    check_tensors(file, adapter, model, stored_parts, problems);
    collect(problems, [&] { counters_of(file); });
    problems.throw_if_any();
}

void check_stored_parameters(const std::string& path, const AdapterJob& adapter,
                             const ModelSpec& model) {
    const SafetensorsFile file(path);
    CappedProblems problems(path);
    std::vector<NamedTensor> projections;
    if (adapter.save_projection) projections = vera_projection_shapes(adapter, model);
    check_tensors(file, adapter, model, std::span(stored_parts).first(1), problems, projections);
    problems.throw_if_any();
}

void load_stored_adapter(const std::string& path, const AdapterJob& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterId adapter, AdapterBank& bank) {
    const SafetensorsFile file(path);
    for (const StoredPart& part : stored_parts) {
        std::vector<NamedTensor> tensors =
            stored_tensors(job, model, state_layers(stage, adapter), part);
        for (NamedTensor& tensor : tensors) tensor.values = file.read_floats(tensor.name);
        bank.upload_cut(adapter, part.part, std::move(tensors));
    }
    bank.set_counters(adapter, counters_of(file));
}

std::vector<NamedTensor> stored_parameters(const std::string& path, const AdapterJob& adapter,
                                           const ModelSpec& model) {
    const SafetensorsFile file(path);
    std::vector<NamedTensor> tensors =
        stored_tensors(adapter, model, all_state_layers(model), stored_parts[0]);
    for (NamedTensor& tensor : tensors) tensor.values = file.read_floats(tensor.name);
    return tensors;
}

}  // namespace loratrain
