#include "io/weights/hf_shards.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* incomplete_hint = "download the model again, all files of it";

/// Shard file -> the tensors it must hold.
using ShardMap = std::map<std::string, std::vector<std::string>>;

bool is_plain_name(const std::string& name) {
    return !name.empty() && fs::path(name).filename() == name && name != "." && name != "..";
}

ShardMap read_weight_map(const std::string& index_path) {
    const Json document = parse_json(read_text(index_path), index_path);
    if (!document.is_object() || !document.contains("weight_map") ||
        !document["weight_map"].is_object() || document["weight_map"].empty()) {
        throw InputError(index_path, "has no 'weight_map' that names tensors", incomplete_hint);
    }
    ShardMap shards;
    CappedProblems problems(index_path);
    for (const auto& [tensor, shard] : document["weight_map"].items()) {
        if (shard.is_string() && is_plain_name(shard.get<std::string>())) {
            shards[shard.get<std::string>()].push_back(tensor);
        } else {
            problems.add(cat(index_path, ":", tensor),
                         "shard is " + json_text(shard) + ", must be a file name", incomplete_hint);
        }
    }
    problems.throw_if_any();
    return shards;
}

/// Without the words of what wraps modules in training: torch.compile, FSDP, checkpointing.
std::string without_wrappers(std::string name) {
    for (const std::string_view word :
         {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."}) {
        for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word)) {
            name.erase(at, word.size());
        }
    }
    return name;
}

/// What names of tensors have in front of those that transformers writes.
struct NamePrefixes {
    std::string embedding;  ///< its name as it is written; "" = not found, or more than once
    std::string model;      ///< before what is model.* usually: "_orig_mod.model.", ""
    std::string usual_model;
    std::string head;  ///< before lm_head.*

    /// Of a name as it is written.
    std::string usual_name(const std::string& written) const {
        const std::string name = without_wrappers(written);
        if (embedding.empty()) return name;
        constexpr std::string_view of_head = "lm_head.";
        if (name.starts_with(head) && name.substr(head.size()).starts_with(of_head)) {
            return name.substr(head.size());
        }
        return name.starts_with(model) ? usual_model + name.substr(model.size()) : name;
    }
};

/// What stands in front of `end`, where one name alone ends with it.
std::optional<std::string> prefix_of(const std::vector<std::string>& names, std::string_view end) {
    std::optional<std::string> found;
    for (const std::string& name : names) {
        const bool fits = name.ends_with(end) &&
                          (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
        if (!fits) continue;
        if (found) return std::nullopt;
        found = name.substr(0, name.size() - end.size());
    }
    return found;
}

/// By the embedding and the head: of a model around a text model by the usual names of these.
NamePrefixes find_prefixes(const std::vector<std::string>& written, const FolderNames& of_folder) {
    constexpr std::string_view embedding = "embed_tokens.weight";
    const bool text_only = of_folder.text_only;
    std::vector<std::string> names;
    for (const std::string& name : written) {
        std::string bare = without_wrappers(name);
        if (!of_folder.predict_further_tokens(bare)) names.push_back(std::move(bare));
    }
    NamePrefixes found;
    found.head = prefix_of(names, head_name).value_or("");
    const std::vector<std::string> usual =
        text_only
            ? std::vector<std::string>{"language_model.model.", "model.language_model.", "model."}
            : std::vector<std::string>{""};
    for (const std::string& model : usual) {
        const auto prefix = prefix_of(names, cat(model, embedding));
        if (!prefix) continue;
        found.model = *prefix;
        found.usual_model = text_only ? "" : "model.";
        found.embedding = cat(*prefix, model, embedding);
        if (text_only && found.head == "language_model.") found.head = "";
        return found;
    }
    return found;
}

/// Of a tensor that is of all experts; else none.
SafetensorsFile::Parts parts_of_experts(const std::string& name,
                                        const std::vector<std::int64_t>& shape) {
    constexpr std::string_view gate_up = ".mlp.experts.gate_up_proj";
    constexpr std::string_view down = ".mlp.experts.down_proj";
    const std::int64_t layer = layer_in_name(name);
    const bool both = name.ends_with(gate_up);
    if (layer < 0 || shape.size() != 3 || !(both || name.ends_with(down))) return {};
    if (element_count(shape) == 0 || (both && shape[1] % 2 != 0)) return {};
    SafetensorsFile::Parts parts;
    for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
        if (!both) {
            parts.push_back(
                {expert_weight_name(layer, expert, Linear::down), {shape[1], shape[2]}});
            continue;
        }
        for (const Linear linear : {Linear::gate, Linear::up}) {
            parts.push_back({expert_weight_name(layer, expert, linear), {shape[1] / 2, shape[2]}});
        }
    }
    return parts;
}

/// Of a convolution's weights [C, 1, K], as [C, K]; else none.
SafetensorsFile::Parts parts_of_convolution(const std::string& name,
                                            const std::vector<std::int64_t>& shape) {
    const bool is_one = is_convolution_name(name) && shape.size() == 3 && shape[1] == 1;
    if (!is_one || element_count(shape) == 0) return {};
    return {{name, {shape[0], shape[2]}}};
}

InputError no_weights(const std::string& dir) {
    std::string hint = "give the directory of a Hugging Face model with safetensors weights";
    if (fs::exists(dir + "/pytorch_model.bin") ||
        fs::exists(dir + "/pytorch_model.bin.index.json")) {
        hint = "it has pytorch_model.bin only; save the model with safe_serialization=True";
    }
    return {dir, "has neither model.safetensors nor model.safetensors.index.json", hint};
}

}  // namespace

HfShards::HfShards(const std::string& dir, const FolderNames& names) {
    const std::string single = dir + "/model.safetensors";
    const std::string index = single + ".index.json";
    if (fs::exists(single)) {
        add_file(single);
    } else if (fs::exists(index)) {
        open_index(dir, index, names);
    } else {
        throw no_weights(dir);
    }
    settle_prefixes(names);
    if (names.text_only) keep_text_model();
    if (names.experts != ExpertNames::usual) {
        rename([&](const std::string& name) { return name_of_files(names.experts, name); });
    }
    if (names.experts == ExpertNames::gpt_oss) {
        unpack_experts();
    } else {
        split_tensors();
    }
}

const SafetensorsEntry& HfShards::entry(const std::string& name) const {
    const auto packed = packed_.find(name);
    return packed != packed_.end() ? packed->second.entry : file(name).entry(name);
}

void HfShards::rename(const std::function<std::string(const std::string&)>& name_of) {
    for (SafetensorsFile& file : files_) file.rename(name_of);
    find_tensors();
}

void HfShards::find_tensors() {
    tensors_.clear();
    for (std::size_t i = 0; i < files_.size(); ++i) {
        for (const auto& [name, entry] : files_[i].entries()) tensors_.emplace(name, i);
    }
}

void HfShards::split_tensors() {
    bool any = false;
    const std::map<std::string, std::size_t> all = tensors_;
    for (const auto& [name, file] : all) {
        const std::vector<std::int64_t>& shape = entry(name).shape;
        SafetensorsFile::Parts parts = parts_of_experts(name, shape);
        if (parts.empty()) parts = parts_of_convolution(name, shape);
        if (parts.empty()) continue;
        files_[file].split(name, parts);
        any = true;
    }
    if (any) find_tensors();
}

void HfShards::unpack_experts() {
    std::map<std::string, SafetensorsEntry> all;
    for (const auto& [name, file] : tensors_) all.emplace(name, files_[file].entry(name));
    std::map<std::string, std::size_t> pieces;
    std::map<std::string, PackedTensor> made;
    for (const auto& [name, entry] : all) {
        PackedExperts experts = packed_experts(name, all);
        const std::size_t file = tensors_.at(name);
        if (!experts.parts.empty()) {
            files_[file].split(name, experts.parts);
            tensors_.erase(name);
        }
        for (const auto& part : experts.parts) pieces.emplace(part.first, file);
        if (experts.parts.empty() && !experts.tensors.empty()) pieces.emplace(name, file);
        made.merge(experts.tensors);
    }
    for (auto& [name, how] : made) {
        const std::size_t file = pieces.at(how.from);
        const std::size_t scales = how.scales.empty() ? file : pieces.at(how.scales);
        tensors_[name] = file;
        packed_[name] = {how, {how.dtype, how.shape}, file, scales};
    }
}

HfTensorReader::HfTensorReader(const HfShards& shards, const std::string& name)
    : file_(shards.file(name)), name_(name) {
    const auto found = shards.packed_.find(name);
    if (found == shards.packed_.end()) return;
    const auto& [how, entry, file, scales] = found->second;
    unpacked_ = unpack(how, shards.files_[file], shards.files_[scales]);
}

void HfTensorReader::read(std::int64_t first, std::int64_t count, std::uint64_t row_bytes,
                          void* target) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(first) * row_bytes;
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * row_bytes;
    if (unpacked_.empty()) return file_.read_bytes(name_, begin, bytes, target);
    LORATRAIN_CHECK(begin + bytes <= unpacked_.size(), name_);
    std::memcpy(target, unpacked_.data() + begin, bytes);
}

void HfShards::keep_text_model() {
    const auto all = std::ssize(tensors_);
    rename(name_in_text_model);
    ignored_ = all - std::ssize(tensors_);
}

void HfShards::settle_prefixes(const FolderNames& of_folder) {
    std::vector<std::string> names;
    for (const auto& [name, file] : tensors_) names.push_back(name);
    const NamePrefixes prefixes = find_prefixes(names, of_folder);
    const auto usual_name = [&](const std::string& name) { return prefixes.usual_name(name); };
    std::set<std::string> settled;
    std::string example;  // the embedding, else any
    for (const auto& [name, file] : tensors_) {
        settled.insert(usual_name(name));
        const bool embeds = without_wrappers(name) == prefixes.embedding;
        if (usual_name(name) != name && (example.empty() || embeds)) example = name;
    }
    // Where two of them would be one, or all are usual, they stay as they are.
    if (settled.size() != tensors_.size() || example.empty()) return;
    renamed_ = cat(example, " is read as ", usual_name(example));
    rename(usual_name);
}

void HfShards::add_file(const std::string& path) {
    files_.emplace_back(path);
    for (const auto& [name, entry] : files_.back().entries()) {
        tensors_.emplace(name, files_.size() - 1);
    }
}

void HfShards::open_index(const std::string& dir, const std::string& index_path,
                          const FolderNames& of_folder) {
    CappedProblems problems(dir);
    std::map<std::string, std::string> path_of;
    const ShardMap shards = read_weight_map(index_path);
    std::vector<std::string> all;
    for (const auto& [shard, names] : shards) all.insert(all.end(), names.begin(), names.end());
    const NamePrefixes prefixes = find_prefixes(all, of_folder);
    const auto is_beside = [&](const std::string& written) {
        const std::string name = prefixes.usual_name(written);
        return of_folder.predict_further_tokens(name) ||
               (of_folder.text_only && name_in_text_model(name).empty());
    };
    for (const auto& [shard, names] : shards) {
        const std::string path = cat(dir, "/", shard);
        const bool all_beside = std::all_of(names.begin(), names.end(), is_beside);
        if (all_beside && !fs::exists(path)) continue;
        if (!collect(problems, [&] { add_file(path); })) continue;
        const SafetensorsFile& file = files_.back();
        for (const std::string& name : names) {
            path_of[name] = path;
            if (file.entries().count(name) == 0 && !is_beside(name)) {
                problems.add(cat(path, ":", name), "tensor is missing, the index says it is here",
                             incomplete_hint);
            }
        }
    }
    for (const SafetensorsFile& file : files_) {
        for (const auto& [name, entry] : file.entries()) {
            const auto named = path_of.find(name);
            if (named == path_of.end()) {
                problems.add(cat(file.path(), ":", name), "tensor is not in the index",
                             incomplete_hint);
            } else if (named->second != file.path()) {
                problems.add(cat(file.path(), ":", name), "tensor is also in " + named->second,
                             incomplete_hint);
            }
        }
    }
    problems.throw_if_any();
}

}  // namespace loratrain
