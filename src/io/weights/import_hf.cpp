#include "io/weights/import_hf.h"

#include <strings.h>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/task_progress.h"
#include "base/tensor.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/json_text.h"
#include "io/tensor_names.h"
#include "io/weights/base_weights.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_config.h"
#include "io/weights/hf_family.h"
#include "io/weights/hf_notes.h"
#include "io/weights/hf_quantized_linears.h"
#include "io/weights/hf_shards.h"
#include "io/weights/quantize_linears.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* cache_prefix = "models--";

/// "models--org--name" -> "org/name".
std::string name_of_cache_folder(std::string folder) {
    folder.erase(0, std::string(cache_prefix).size());
    const std::size_t dashes = folder.find("--");
    if (dashes != std::string::npos) folder.replace(dashes, 2, "/");
    return folder;
}

bool is_hub_name(const std::string& text) {
    const auto allowed = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '_' || c == '-';
    };
    return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '/' &&
           text.front() != '.' && text.back() != '/' &&
           std::all_of(text.begin(), text.end(), allowed);
}

/// Whether the last parts of two names or folders are the same word.
bool end_alike(const std::string& one, const std::string& other) {
    return ::strcasecmp(fs::path(one).filename().c_str(), fs::path(other).filename().c_str()) == 0;
}

std::string name_in_config(const std::string& config_json) {
    const Json config = parse_json(config_json, "config.json");
    const auto found = config.find("_name_or_path");
    return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Name of the base model that exported adapters carry, so that PEFT finds it. The first of these
/// that applies:
/// - for a folder in the cache of the Hugging Face hub (models--ORG--NAME/snapshots/...): ORG/NAME;
/// - the hub name in `_name_or_path` of config.json, if its last part equals the folder's name
///   (another name may be of the model that this one was tuned from);
/// - the absolute path of the folder.
std::string base_model_name(const std::string& hf_dir, const std::string& config_json) {
    const fs::path folder = (fs::absolute(hf_dir) / "").lexically_normal().parent_path();
    for (const fs::path& part : folder) {
        if (part.string().starts_with(cache_prefix)) return name_of_cache_folder(part);
    }
    const std::string name = name_in_config(config_json);
    return is_hub_name(name) && end_alike(name, folder.string()) ? name : folder.string();
}

/// Name of the model that a quantised folder was made from; adapters of the quantised model work on
/// it as well. It is `_name_or_path` of config.json, if that is a hub name or an absolute path and
/// does not end with the folder's own name. "" = config.json does not name it.
std::string name_before_quantization(const std::string& hf_dir, const std::string& config_json) {
    const std::string name = name_in_config(config_json);
    const bool clear = is_hub_name(name) || name.starts_with('/');
    return clear && !end_alike(name, base_model_name(hf_dir, config_json)) ? name : "";
}

constexpr std::uint64_t compare_bytes = 8U << 20U;

bool is_importable(const std::string& dtype) {
    return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

void check_source_tensor(const HfShards& shards, const BaseTensor& tensor,
                         CappedProblems& problems) {
    const SafetensorsEntry& entry = shards.entry(tensor.name);
    if (entry.shape != tensor.shape) {
        problems.add(shards.where(tensor.name),
                     "has shape " + shape_text(entry.shape) + ", config.json needs " +
                         shape_text(tensor.shape),
                     "weights and config.json do not belong together");
    }
    if (!is_importable(entry.dtype)) {
        problems.add(
            shards.where(tensor.name), "has dtype " + entry.dtype,
            "F32, BF16 and F16 can be imported, and linear layers that config.json says are "
            "quantised");
    }
}

/// A stored head of a model with tied embeddings must be the embedding itself.
void check_tied_head(const HfShards& shards, CappedProblems& problems) {
    const std::string hint = "set tie_word_embeddings to false in config.json if the head is real";
    const SafetensorsEntry& head = shards.entry(head_name);
    const SafetensorsEntry& embedding = shards.entry(embedding_name);
    if (head.dtype != embedding.dtype || head.shape != embedding.shape) {
        problems.add(shards.where(head_name),
                     "differs in shape or dtype from the embedding it is tied to", hint);
        return;
    }
    std::vector<char> a(compare_bytes);
    std::vector<char> b(compare_bytes);
    const std::uint64_t total = head.end - head.begin;
    for (std::uint64_t done = 0; done < total; done += compare_bytes) {
        const std::uint64_t bytes = std::min(compare_bytes, total - done);
        shards.file(head_name).read_bytes(head_name, done, bytes, a.data());
        shards.file(embedding_name).read_bytes(embedding_name, done, bytes, b.data());
        if (std::memcmp(a.data(), b.data(), bytes) != 0) {
            problems.add(shards.where(head_name),
                         "differs from the embedding although tie_word_embeddings is true", hint);
            return;
        }
    }
}

/// Operators have them built in.
void check_activation_constants(const HfShards& shards, const ModelSpec& spec,
                                CappedProblems& problems) {
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        if (!has_activation_weights(spec.layer(layer))) continue;
        for (const auto& [constant, value] : {std::pair{"beta", 0.5F}, {"eps", -1e-6F}}) {
            const std::string name = activation_constant_name(layer, constant);
            if (!shards.has(name)) continue;
            const std::vector<float> found = shards.file(name).read_floats(name);
            const bool fits = found.size() == 1 && std::abs(found[0] / value - 1.0F) < 0.01F;
            if (fits) continue;
            problems.add(shards.where(name), cat("must be ", value),
                         "this variant of the model is not supported");
        }
    }
}

/// The folder, and how its tensors come into base.h5.
struct Import {
    const HfShards& shards;
    std::vector<BaseTensor> dense;
    std::vector<BaseTensor> linears;  ///< of a base that will be quantised
    std::optional<HfQuantizedLinears> quantized;
    std::optional<Quantization> quantization;
    std::int64_t further_layers = 0;  ///< of the folder, which are left out
};

/// As PEFT names what it puts beside and around the linears of a model.
bool is_of_adapter(const std::string& name) {
    return name.find(".lora_") != std::string::npos ||
           name.find(".base_layer.") != std::string::npos;
}

/// Of layers that predict further tokens, and where these have names of their own of pictures too:
/// transformers leaves out both in the classes of text models.
bool is_left_out(const Import& import, const ModelSpec& spec, const std::string& name) {
    const std::string_view prefix = family_named(spec.family)->further_layers.prefix;
    if (!prefix.empty()) return name.starts_with(prefix) || name.starts_with("model.visual.");
    const std::int64_t further = layer_in_name(name) - spec.layers;
    return further >= 0 && further < import.further_layers;
}

void check_names(const Import& import, const ModelSpec& spec, CappedProblems& problems) {
    std::vector<std::string> expected;
    for (const auto* tensors : {&import.dense, &import.linears}) {
        for (const BaseTensor& tensor : *tensors) expected.push_back(tensor.name);
    }
    if (import.quantized) {
        const auto& names = import.quantized->names();
        expected.insert(expected.end(), names.begin(), names.end());
    }
    std::sort(expected.begin(), expected.end());
    for (const auto& [name, file] : import.shards.tensors()) {
        const bool tied_head = spec.tie_word_embeddings && name == head_name;
        if (tied_head || is_stored_table_name(name) || is_left_out(import, spec, name)) continue;
        if (!std::binary_search(expected.begin(), expected.end(), name)) {
            problems.add(import.shards.where(name),
                         "is not a tensor of a " + spec.family + " model with this config.json",
                         is_of_adapter(name) ? "it belongs to an adapter: merge it into the model "
                                               "(PEFT: merge_and_unload), or give the base alone"
                                             : "this variant of the model is not supported");
        }
    }
}

void check_sources(const HfShards& shards, const std::vector<BaseTensor>& tensors,
                   const std::string& dir, CappedProblems& problems) {
    for (const BaseTensor& tensor : tensors) {
        if (shards.has(tensor.name)) {
            check_source_tensor(shards, tensor, problems);
        } else {
            const bool head = tensor.name == head_name;
            problems.add(
                dir + ":" + tensor.name, "tensor is missing",
                cat("the download is incomplete, or config.json belongs to another model",
                    head ? "; if the head is the embedding, set tie_word_embeddings to true" : ""));
        }
    }
}

Import check_weights(const HfShards& shards, const ModelSpec& spec, const ImportOptions& options,
                     const std::string& dir, std::int64_t further_layers) {
    CappedProblems problems(dir);
    Import import{shards, {}, {}, std::nullopt, std::nullopt, further_layers};
    const bool quantized = spec.quantization || options.quantize;
    for (const BaseTensor& tensor : base_tensors(spec)) {
        const bool codes = quantized && is_linear_weight(tensor.name);
        (codes ? import.linears : import.dense).push_back(tensor);
    }
    check_sources(shards, import.dense, dir, problems);
    if (spec.quantization) {
        import.quantized.emplace(shards, import.linears, *spec.quantization, problems);
        import.quantization = import.quantized->quantization();
        if (options.quantize) {
            problems.add(dir,
                         cat("is quantised already: ", traits_of(spec.quantization->format).name),
                         "leave --quantize out, or import the model as it was before");
        }
    } else if (options.quantize) {
        check_sources(shards, import.linears, dir, problems);
        import.quantization = check_quantizable(shards, import.linears, *options.quantize,
                                                options.store_bf16, problems);
    }
    check_names(import, spec, problems);
    check_activation_constants(shards, spec, problems);
    if (spec.tie_word_embeddings && shards.has(head_name) && shards.has(embedding_name)) {
        check_tied_head(shards, problems);
    }
    problems.throw_if_any();
    return import;
}

WeightFormat stored_format(const std::string& dtype, bool store_bf16) {
    return dtype == "BF16" || store_bf16 ? WeightFormat::bf16 : WeightFormat::f32;
}

std::uint64_t stored_bytes(const BaseTensor& tensor, WeightFormat format) {
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t cols = element_count(tensor.shape) / rows;
    return static_cast<std::uint64_t>(rows) * code_bytes(traits_of(format), cols);
}

/// Room for blocks of tensors, kept from one tensor to the next.
struct CopyRoom {
    std::vector<char> source;  ///< as the shard has them, where that is not how they are stored
    std::vector<char> target;
};

void convert_values(FloatFormat from, const char* source, std::int64_t count, WeightFormat to,
                    char* target) {
    if (to == WeightFormat::f32) {
        convert_to_f32(from, source, count, reinterpret_cast<float*>(target));
    } else {
        convert_to_bf16(from, source, count, reinterpret_cast<BFloat16*>(target));
    }
}

/// Copies one tensor block by block; returns the bytes written.
std::uint64_t copy_tensor(const HfShards& shards, const BaseTensor& tensor, WeightFormat stored,
                          BaseWriter& writer, CopyRoom& room) {
    const HfTensorReader reader(shards, tensor.name);
    const FloatFormat format = float_format(shards.entry(tensor.name).dtype).value();
    const auto row = static_cast<std::uint64_t>(element_count(tensor.shape) / tensor.shape[0]);
    const std::int64_t block = BaseWriter::rows_per_block(tensor.shape, dense_type(stored));
    const auto block_elements = static_cast<std::size_t>(block) * row;
    const FloatFormat target_format =
        stored == WeightFormat::f32 ? FloatFormat::f32 : FloatFormat::bf16;
    const bool same = format == target_format;
    room.target.resize(std::max(room.target.size(), block_elements * size_of(target_format)));
    if (!same) room.source.resize(std::max(room.source.size(), block_elements * size_of(format)));
    char* const source = same ? room.target.data() : room.source.data();
    writer.begin(tensor.name, tensor.shape, dense_type(stored));
    for (std::int64_t first = 0; first < tensor.shape[0]; first += block) {
        const std::int64_t rows = std::min(block, tensor.shape[0] - first);
        const auto elements = static_cast<std::int64_t>(static_cast<std::uint64_t>(rows) * row);
        reader.read(first, rows, row * size_of(format), source);
        if (!same) convert_values(format, source, elements, stored, room.target.data());
        check_finite(target_format, room.target.data(), elements,
                     first * static_cast<std::int64_t>(row), shards.where(tensor.name));
        writer.write_rows(rows, room.target.data());
    }
    writer.end();
    return stored_bytes(tensor, stored);
}

fs::path output_folder(const std::string& output) {
    const fs::path folder = fs::path(output).parent_path();
    return folder.empty() ? fs::path(".") : folder;
}

/// Its folder need not be there yet: the part of it that is must be able to take the rest.
void check_output(const std::string& output, bool force) {
    fs::path there = output_folder(output);
    while (!fs::exists(there) && there.has_parent_path()) there = there.parent_path();
    if (!fs::exists(there)) there = ".";
    check_place_of_file(there / fs::path(output).filename());
    if (fs::exists(output) && !force) {
        throw InputError(output, "exists already",
                         "choose another name, or replace it with --force");
    }
}

/// Of codes and scales, at most.
std::uint64_t quantized_bytes(const BaseTensor& tensor, WeightFormat format) {
    const MatrixShape shape{tensor.shape[0], tensor.shape[1]};
    const std::uint64_t own_tables = 2 * tensor_alignment + 2048;
    return weight_layout(traits_of(format), shape).bytes + own_tables;
}

std::uint64_t copy_linear(const Import& import, const BaseTensor& tensor, BaseWriter& writer) {
    if (import.quantized) return import.quantized->copy(tensor, writer);
    return quantize_tensor(import.shards, tensor, *import.quantization, writer);
}

void name_base(const std::string& hf_dir, const std::string& config, const ImportOptions& options,
               const Import& import, ImportReport& report) {
    std::string& name = report.base_model_name;
    name = options.base_model_name;
    if (name.empty() && import.quantized) name = name_before_quantization(hf_dir, config);
    report.base_is_quantized = name.empty() && import.quantized;
    if (name.empty()) name = base_model_name(hf_dir, config);
}

/// As scripts/prepare_data.py notes it in token files.
std::string tokenizer_of(const std::string& hf_dir) {
    const std::string path = hf_dir + "/tokenizer.json";
    std::error_code missing;
    if (!fs::is_regular_file(path, missing)) return "";
    const std::string text = read_text(path);
    Checksum checksum;
    checksum.update(text.data(), text.size());
    return "xxh64:" + checksum.hex();
}

}  // namespace

ImportReport import_hf(const std::string& hf_dir, const std::string& output,
                       const ImportOptions& options) {
    check_output(output, options.force);
    require_directory(hf_dir, "give the folder of a Hugging Face model, with its config.json",
                      {"config.json"});
    const std::string config_path = hf_dir + "/config.json";
    const std::string config = read_text(config_path);
    const ModelSpec spec = parse_hf_config(config, config_path);
    const ExpertSpec* experts = spec.experts();
    const HfShards shards(
        hf_dir, {!spec.wrapper.empty(), experts != nullptr ? experts->names : ExpertNames::usual,
                 family_named(spec.family)->further_layers.prefix});
    const Import import = check_weights(shards, spec, options, hf_dir, further_layers_of(config));

    const auto format_of = [&](const BaseTensor& tensor) {
        return stored_format(shards.entry(tensor.name).dtype, options.store_bf16);
    };
    std::uint64_t needed = 0;
    for (const BaseTensor& tensor : import.dense) needed += stored_bytes(tensor, format_of(tensor));
    for (const BaseTensor& tensor : import.linears) {
        needed += quantized_bytes(tensor, import.quantization->format);
    }
    make_directory(output_folder(output));
    check_space(output, needed);

    ImportReport report;
    report.family = spec.family;
    report.wrapper = spec.wrapper;
    report.ignored = shards.ignored();
    report.renamed = shards.renamed();
    report.notes = hf_config_notes(config);
    report.quantization = import.quantization;
    name_base(hf_dir, config, options, import, report);
    write_file_atomic(output, [&](const std::string& temporary) {
        BaseWriter writer(temporary, config, report.base_model_name, tokenizer_of(hf_dir),
                          import.quantization);
        TaskProgress progress("writing " + output, needed);
        const auto copied = [&](std::uint64_t bytes) {
            report.bytes += bytes;
            ++report.tensors;
            progress.add(bytes);
        };
        CopyRoom room;
        for (const BaseTensor& tensor : import.dense) {
            copied(copy_tensor(shards, tensor, format_of(tensor), writer, room));
        }
        for (const BaseTensor& tensor : import.linears) {
            copied(copy_linear(import, tensor, writer));
        }
        writer.finish();
    });
    return report;
}

}  // namespace loratrain
