#include "io/adapters/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/tensor.h"
#include "base/text.h"
#include "io/adapters/adapter_config.h"
#include "io/adapters/exported_adapter.h"
#include "io/adapters/peft_config.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* config_name = "/adapter_config.json";

void check_tensor(const SafetensorsFile& file, const std::string& name,
                  const std::vector<std::int64_t>& shape, CappedProblems& problems) {
    const std::string where = file.path() + ":" + name;
    const auto found = file.entries().find(name);
    if (found == file.entries().end()) {
        problems.add(where, "tensor is missing",
                     "targets and layers must be those of the job and its base model");
        return;
    }
    const SafetensorsEntry& entry = found->second;
    if (entry.shape != shape) {
        problems.add(
            where, "has shape " + shape_text(entry.shape) + ", the job needs " + shape_text(shape),
            "was the adapter trained on this base model, with this r?");
    }
    if (!float_format(entry.dtype)) {
        problems.add(where, "has dtype " + entry.dtype, "F32, BF16, F16 and F64 can be read");
    }
}

/// PEFT writes the base's own too where the head or the embedding is a target, and where the
/// embedding has another size than that of the base it was made from: resize_token_embeddings().
void check_base_tensors(const SafetensorsFile& file, const ModelSpec& model,
                        std::set<std::string>& known, CappedProblems& problems) {
    const std::vector<std::int64_t> shape{model.vocab_size, model.hidden_size};
    for (const OwnWeight& own : own_weights(model)) {
        known.insert(own.tensor);
        const auto found = file.entries().find(own.tensor);
        if (found == file.entries().end() || found->second.shape == shape) continue;
        problems.add(
            cat(file.path(), ":", own.tensor),
            cat("has shape ", shape_text(found->second.shape), ", that of the base is ",
                shape_text(shape)),
            "the embedding was resized: save the resized model with save_pretrained(), and "
            "import that folder: loratrain import-hf");
    }
}

/// PEFT writes the trained rows of a tied head twice where it writes the base's own.
void check_rows_of_head(const SafetensorsFile& file, const AdapterJob& adapter,
                        const ModelSpec& model, std::set<std::string>& known,
                        CappedProblems& problems) {
    if (!model.tie_word_embeddings || !has_token_rows(adapter.form)) return;
    const FormTensor rows = token_rows(std::ssize(adapter.trainable_token_indices));
    const std::string name = peft_tensor_name(outer_layer(model, Linear::head), Linear::head, rows);
    if (!file.entries().contains(name)) return;
    known.insert(name);
    const std::vector<std::int64_t> shape =
        tensor_shape(rows, 0, linear_shape(model, Linear::embedding));
    check_tensor(file, name, shape, problems);
    const std::string own = peft_tensor_name(embedding_layer, Linear::embedding, rows);
    const auto can_be_read = [&](const std::string& tensor) {
        const auto found = file.entries().find(tensor);
        return found != file.entries().end() && found->second.shape == shape &&
               float_format(found->second.dtype);
    };
    if (!can_be_read(name) || !can_be_read(own)) return;
    if (file.read_floats(name) == file.read_floats(own)) return;
    problems.add(cat(file.path(), ":", name), cat("has other values than ", own),
                 "the head is the embedding, so both have the same rows: take one of them out");
}

std::string tensor_names(const AdapterForm& form) {
    std::vector<std::string> names;
    for (const FormTensor& tensor : form.tensors) names.push_back(tensor.name);
    return join(names, ", ");
}

void check_tensors(const SafetensorsFile& file, const AdapterJob& adapter, const ModelSpec& model,
                   CappedProblems& problems) {
    std::set<std::string> known;
    const auto check = [&](std::int64_t layer, Linear linear) {
        const int rank = target_rank(adapter, model, layer, linear);
        const LayerLinear target = target_of(model, layer, linear);
        const LinearShape& shape = target.shape;
        const TargetExperts& experts = target.experts;
        for (std::int32_t e = experts.first; e < experts.first + experts.count; ++e) {
            for (const FormTensor& tensor : adapter.form.tensors) {
                if (!has_tensor(adapter, model, layer, linear, tensor)) continue;
                const std::string name = peft_tensor_name(layer, linear, tensor, e);
                known.insert(name);
                check_tensor(file, name, tensor_shape(tensor, rank, shape), problems);
            }
        }
    };
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) check(layer, static_cast<Linear>(i));
    }
    for (const Linear linear : outer_linears) check(outer_layer(model, linear), linear);
    check_base_tensors(file, model, known, problems);
    check_rows_of_head(file, adapter, model, known, problems);
    for (const NamedTensor& projection : vera_projection_shapes(adapter, model)) {
        known.insert(projection.name);
        const bool stored = file.entries().contains(projection.name);
        if (stored) check_tensor(file, projection.name, projection.shape, problems);
    }
    for (const auto& [name, entry] : file.entries()) {
        if (known.count(name) > 0) continue;
        problems.add(
            file.path() + ":" + name, "is not a tensor of this adapter",
            cat("only ", tensor_names(adapter.form), " of the job's target modules can be read"));
    }
}

/// The weights; where they cannot be opened, none and a problem.
std::optional<SafetensorsFile> open_weights(const std::string& dir, CappedProblems& problems) {
    std::optional<SafetensorsFile> file;
    collect(problems, [&] { file.emplace(cat(dir, "/", adapter_weights_name)); });
    return file;
}

/// Opens and checks everything, so that all problems of a directory come at once.
SafetensorsFile open_checked(const std::string& dir, const AdapterJob& adapter,
                             const ModelSpec& model) {
    require_adapter_directory(dir);
    CappedProblems problems(dir);
    check_peft_config(dir + config_name, adapter, model, problems);
    const bool config_fits = problems.empty();
    std::optional<SafetensorsFile> file = open_weights(dir, problems);
    if (file && has_other_names(model)) {
        file->rename([&](const std::string& name) { return peft_name_of_files(model, name); });
    }
    // With another r or other targets every tensor would be a problem of its own.
    if (file && config_fits) check_tensors(*file, adapter, model, problems);
    problems.throw_if_any();
    return *file;
}

/// One more than the last layer in the names.
/// Writes adapter_config.json of an adapter with tensors of these names, as in the text model.
void write_adapter_config(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model,
                          const std::string& base_model_name_or_path,
                          const std::vector<std::string>& names) {
    std::int64_t layers = 0;
    for (const std::string& name : names) layers = std::max(layers, layer_in_name(name) + 1);
    write_text_atomic(dir + config_name, peft_config_text(exported_job(adapter),
                                                          base_model_name_or_path, model, layers));
}

constexpr std::int64_t floats_at_once = 2 << 20;

/// Of a number in a format, relative, rounded up.
float rounding_of(FloatFormat format) {
    if (format == FloatFormat::bf16) return 1.0F / 256.0F;
    return format == FloatFormat::f16 ? 1.0F / 2048.0F : 1e-7F;
}

bool are_close(const std::vector<float>& stored, const std::vector<float>& own, std::size_t count,
               float rounding) {
    constexpr float least = 6e-8F;  // between numbers of f16
    for (std::size_t i = 0; i < count; ++i) {
        const float error = std::abs(own[i] - stored[i]);
        if (!(error <= rounding * std::abs(own[i]) + least)) return false;
    }
    return true;
}

constexpr const char* tokenizer_files[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "tekken.json",
                                           "chat_template.jinja",
                                           "chat_template.json"};

}  // namespace

void require_adapter_directory(const std::string& dir) {
    const std::string weights = cat(dir, "/", adapter_weights_name);
    std::error_code unknown;
    if (!fs::exists(weights, unknown) && fs::exists(dir + "/adapter_model.bin", unknown)) {
        throw InputError(dir, "has adapter_model.bin only",
                         "save the adapter with safe_serialization=True");
    }
    require_directory(dir,
                      cat("give a directory that PEFT or loratrain has written, with its ",
                          config_name + 1, " and ", adapter_weights_name),
                      {config_name + 1, adapter_weights_name});
}

void write_adapter(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model,
                   const std::string& base_model_name_or_path, std::vector<NamedTensor> tensors,
                   const std::string& base_quantization) {
    make_directory(dir);
    std::vector<std::string> written;
    for (const NamedTensor& tensor : tensors) written.push_back(tensor.name);
    std::map<std::string, std::string> metadata;
    if (!base_quantization.empty()) metadata["base_quantization"] = base_quantization;
    write_safetensors(cat(dir, "/", adapter_weights_name),
                      exported_tensors(adapter, model, std::move(tensors)), metadata,
                      adapter.export_dtype);
    write_adapter_config(dir, adapter, model, base_model_name_or_path, written);
}

void write_exported_adapter(const std::string& dir, const AdapterJob& adapter,
                            const ModelSpec& model, const std::string& base_model_name_or_path,
                            const std::string& weights) {
    make_directory(dir);
    copy_bytes(weights, cat(dir, "/", adapter_weights_name));
    std::vector<std::string> written;
    const SafetensorsFile file(weights);
    for (const auto& [name, entry] : file.entries()) {
        written.push_back(peft_name_of_files(model, name));
    }
    write_adapter_config(dir, adapter, model, base_model_name_or_path, written);
}

std::string adapter_checksum(const std::string& dir) {
    Checksum checksum;
    for (const std::string& path : {dir + config_name, cat(dir, "/", adapter_weights_name)}) {
        const std::string bytes = read_text(path);
        checksum.update(bytes.data(), bytes.size());
    }
    return checksum.hex();
}

AdapterFile::AdapterFile(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model)
    : adapter_(adapter), model_(model), file_(open_checked(dir, adapter, model)) {}

std::vector<float> AdapterFile::read(std::int64_t layer, Linear linear, const FormTensor& tensor,
                                     std::int32_t expert) const {
    return read_finite(peft_tensor_name(layer, linear, tensor, expert));
}

namespace {

/// PEFT saves the base's own weights with such an adapter.
bool saves_base(const AdapterJob& adapter) {
    return has_token_rows(adapter.form) || adapter.targets_outer();
}

}  // namespace

void AdapterFile::check_values(const WeightSource* base) const {
    CappedProblems problems(file_.path());
    for (const OwnWeight& own : own_weights(model_)) {
        if (!file_.entries().contains(own.tensor)) continue;
        if (base != nullptr && !is_of_base(file_, own, *base)) {
            problems.add(cat(file_.path(), ":", own.tensor), not_of_base, not_of_base_hint);
        }
        if (base == nullptr && !saves_base(adapter_)) {
            problems.add(cat(file_.path(), ":", own.tensor),
                         "is not trained here, and a running job does not compare it with its base",
                         "give this init_from to a job that starts; it compares the two");
        }
    }
    for (const auto& [name, entry] : file_.entries()) {
        collect(problems, [&] { read_finite(name); });
    }
    for (const NamedTensor& projection : vera_projections(adapter_, model_)) {
        const bool stored = file_.entries().contains(projection.name);
        if (!stored || file_.read_floats(projection.name) == projection.values) continue;
        problems.add(cat(file_.path(), ":", projection.name),
                     cat("is not what projection_prng_key ", adapter_.projection_prng_key,
                         " makes, and it is not read"),
                     "PEFT rounds it on a base in bf16: start from one made on a base in fp32");
    }
    problems.throw_if_any();
}

void warn_of_dead_rules(const std::vector<AdapterJob>& adapters, const ModelSpec& model) {
    std::set<std::string> warned;
    for (const AdapterJob& adapter : adapters) {
        for (const std::string& dir : adapter.directories()) {
            if (warned.insert(dir).second)
                AdapterConfig(dir + config_name, model).warn_of_dead_rules();
        }
    }
}

std::vector<float> AdapterFile::read_finite(const std::string& name) const {
    std::vector<float> values = file_.read_floats(name);
    check_finite(FloatFormat::f32, values.data(), std::ssize(values), 0, file_.path() + ":" + name);
    return values;
}

std::vector<OwnWeight> own_weights(const ModelSpec& model) {
    std::vector<OwnWeight> found;
    for (const Linear linear : outer_linears) {
        const bool head = linear == Linear::head && !model.tie_word_embeddings;
        for (const char* end :
             {".weight", ".base_layer.weight", ".token_adapter.base_layer.weight"}) {
            found.push_back({cat("base_model.model.", module_path(0, linear), end),
                             head ? head_name : embedding_name});
        }
    }
    return found;
}

bool is_of_base(const SafetensorsFile& file, const OwnWeight& own, const WeightSource& base) {
    const std::optional<FloatFormat> format = float_format(file.entry(own.tensor).dtype);
    if (!format) return false;
    const bool narrow = base.dense_type_of(own.weight) == DType::bf16;
    const float rounding =
        std::max(rounding_of(*format), rounding_of(narrow ? FloatFormat::bf16 : FloatFormat::f32));
    const std::int64_t rows = base.spec().vocab_size;
    const std::int64_t cols = base.spec().hidden_size;
    const std::int64_t at_once = std::max<std::int64_t>(1, floats_at_once / cols);
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(cols) * size_of(*format);
    std::vector<float> values(static_cast<std::size_t>(at_once * cols));
    std::vector<float> stored(values.size());
    std::vector<std::byte> bytes(values.size() * size_of(*format));
    for (std::int64_t first = 0; first < rows; first += at_once) {
        const std::int64_t count = std::min(at_once, rows - first);
        file.read_bytes(own.tensor, static_cast<std::uint64_t>(first) * row_bytes,
                        static_cast<std::uint64_t>(count) * row_bytes, bytes.data());
        convert_to_f32(*format, bytes.data(), count * cols, stored.data());
        base.read_rows(own.weight, first, matrix(values.data(), DType::f32, count, cols));
        if (!are_close(stored, values, static_cast<std::size_t>(count * cols), rounding)) {
            return false;
        }
    }
    return true;
}

bool copy_file_of_model(const std::string& base, const std::string& name, const std::string& dir) {
    std::error_code unreadable;
    const fs::path source = fs::path(base) / name;
    if (!fs::is_regular_file(source, unreadable)) return false;
    try {
        write_file_atomic((fs::path(dir) / name).string(),
                          [&](const std::string& path) { fs::copy_file(source, path); });
        return true;
    } catch (const std::exception& error) {
        log::warn(cat("could not copy ", source.string(), ": ", error.what()));
        return false;
    }
}

int copy_tokenizer_files(const std::string& base, const std::string& dir) {
    int copied = 0;
    for (const char* name : tokenizer_files) copied += copy_file_of_model(base, name, dir) ? 1 : 0;
    return copied;
}

}  // namespace loratrain
