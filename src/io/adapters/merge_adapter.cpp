#include "io/adapters/merge_adapter.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/task_progress.h"
#include "config/job_words.h"
#include "config/model_limits.h"
#include "io/adapters/adapter_products.h"
#include "io/adapters/merged_rows.h"
#include "io/adapters/merged_tensors.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

/// A tensor of the model with its tensors in files.
struct Stored {
    const Piece* piece = nullptr;
    std::vector<FileTensor> tensors;
    std::uint64_t bytes = 0;
};
using Shard = std::vector<Stored>;

/// The largest power of 2, up to 8, of which so many bytes are a multiple.
std::uint64_t alignment_of(std::uint64_t bytes) {
    return std::uint64_t{1} << std::min(std::countr_zero(bytes), 3);
}

/// In each, tensors come by the largest power of 2 that divides their bytes, so that every one
/// begins at a multiple of the size of its numbers: programs could not read it elsewhere.
/// MergedTensors has checked that codes end where the scales behind them may begin.
std::vector<Shard> shards_of(const MergedTensors& merged, std::uint64_t most) {
    std::vector<Shard> shards;
    std::uint64_t bytes = 0;
    for (const Piece& piece : merged.pieces()) {
        Stored stored{&piece, merged.in_files(piece)};
        for (const FileTensor& tensor : stored.tensors) stored.bytes += tensor.bytes;
        if (shards.empty() || bytes + stored.bytes > most) {
            shards.emplace_back();
            bytes = 0;
        }
        bytes += stored.bytes;
        shards.back().push_back(std::move(stored));
    }
    for (Shard& shard : shards) {
        std::ranges::stable_sort(shard, std::greater<>(),
                                 [](const Stored& stored) { return alignment_of(stored.bytes); });
    }
    return shards;
}

void write_shard(const std::string& path, const Shard& shard, const MergedTensors& merged,
                 TaskProgress& progress) {
    Json header;
    header["__metadata__"]["format"] = "pt";
    std::uint64_t begin = 0;
    for (const Stored& stored : shard) {
        for (const FileTensor& tensor : stored.tensors) {
            const std::uint64_t end = begin + tensor.bytes;
            header[tensor.name] = {
                {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
            begin = end;
        }
    }
    const std::string text = dump_aligned_json(header);
    const std::uint64_t bytes = text.size();
    write_file_atomic(path, [&](const std::string& temporary) {
        OutputFile file(temporary);
        file.write(&bytes, sizeof(bytes));
        file.write(text.data(), text.size());
        for (const Stored& stored : shard) {
            merged.write(*stored.piece, file);
            progress.add(stored.bytes);
        }
        file.close();
    });
}

/// Of the base's folder; the tokenizer of the adapter's where that has none.
void copy_model_files(const std::string& adapter, const std::string& base, const std::string& to) {
    copy_file_of_model(base, "generation_config.json", to);
    if (copy_tokenizer_files(base, to) > 0 || copy_tokenizer_files(adapter, to) > 0) return;
    log::warn(cat(to, " has no tokenizer: neither ", base, " nor ", adapter,
                  " has its files; copy them from the model"));
}

std::string shard_name(std::size_t shard, std::size_t count) {
    if (count == 1) return "model.safetensors";
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
    return name;
}

std::uint64_t bytes_of_shards(const std::vector<Shard>& shards) {
    std::uint64_t bytes = 0;
    for (const Shard& shard : shards) {
        for (const Stored& stored : shard) bytes += stored.bytes;
    }
    return bytes;
}

void write_weights(const std::string& dir, const MergedTensors& merged,
                   const std::vector<Shard>& shards, MergeReport& report) {
    Json map = Json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
        for (const Stored& stored : shards[i]) {
            for (const FileTensor& tensor : stored.tensors) {
                map[tensor.name] = shard_name(i, shards.size());
            }
        }
    }
    TaskProgress progress("writing " + dir, report.bytes);
    for (std::size_t i = 0; i < shards.size(); ++i) {
        write_shard(cat(dir, "/", shard_name(i, shards.size())), shards[i], merged, progress);
    }
    report.files = std::ssize(shards);
    if (shards.size() == 1) return;
    const Json index = {{"metadata", {{"total_size", report.bytes}}}, {"weight_map", map}};
    write_text_atomic(dir + "/model.safetensors.index.json", dump_json(index, 2) + "\n");
}

void write_config(const std::string& dir, const WeightSource& base,
                  std::optional<MergedForm> form) {
    Json config = parse_json(base.config(), "config.json");
    config.erase("quantization_config");
    config.erase("torch_dtype");
    const DType type = base.dense_type_of(embedding_name);
    config["dtype"] = torch_name(type);
    if (form) config["quantization_config"] = quantization_config(*form, type);
    write_text_atomic(dir + "/config.json", dump_json(config, 2) + "\n");
}

void check_form_fits(const ModelSpec& model, MergedForm form) {
    const ModelLimit* limit =
        limit_of(model, form == MergedForm::mxfp4 ? Ability::merge_mxfp4 : Ability::merge_linears);
    if (limit == nullptr) return;
    throw InputError(cat("--quantize ", word_of(merged_form_words, form)), limit->what(model),
                     limit->hint);
}

void require_new(const std::string& output) {
    if (fs::exists(output)) throw InputError(output, "exists already", "choose another folder");
}

}  // namespace

MergeReport merge_adapter(const std::string& dir, const WeightSource& base,
                          const std::string& output, const MergeOptions& options) {
    require_new(output);
    if (options.form) check_form_fits(base.spec(), *options.form);
    const AdapterProducts products(dir, base);
    const MergedTensors merged(base, products, options.form);
    MergeReport report;
    report.modules = products.count();
    const std::vector<Shard> shards = shards_of(merged, options.shard_bytes);
    report.bytes = bytes_of_shards(shards);
    check_space(output, report.bytes);
    write_new_directory(output, [&](const std::string& temporary) {
        write_weights(temporary, merged, shards, report);
        write_config(temporary, base, options.form);
        if (options.form) {
            const Json changes =
                surviving_changes_json(merged.changes(), word_of(merged_form_words, *options.form));
            write_text_atomic(cat(temporary, "/", surviving_changes_name),
                              dump_json(changes, 2) + "\n");
            report.changes = merged.changes();
        }
        copy_model_files(dir, base.base_model_name(), temporary);
    });
    return report;
}

}  // namespace loratrain
