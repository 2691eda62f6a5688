#include "train/records/step_exports.h"

#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "base/text.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* ready_name = "READY";
constexpr std::string_view step_prefix = "step-";

fs::path folder_of(const Job& job, AdapterId adapter) {
    return fs::path(job.run.dir) / "exports" / job.adapter(adapter).name;
}

fs::path step_dir(const Job& job, AdapterId adapter, std::int32_t step) {
    return folder_of(job, adapter) / cat(step_prefix, step);
}

/// Directories of the folder by step.
std::map<std::int32_t, fs::path> step_exports_in(const fs::path& folder) {
    std::map<std::int32_t, fs::path> found;
    if (!fs::is_directory(folder)) return found;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(step_prefix) || !entry.is_directory()) continue;
        std::int32_t step = 0;
        const char* end = name.data() + name.size();
        const auto read = std::from_chars(name.data() + step_prefix.size(), end, step);
        if (read.ec == std::errc{} && read.ptr == end) found.emplace(step, entry.path());
    }
    return found;
}

/// Nobody sees a part of it under its own name.
void remove_whole(const fs::path& directory) {
    const fs::path away = directory.string() + ".tmp";
    remove_directory(away.string());
    fs::rename(directory, away);
    remove_directory(away.string());
}

}  // namespace

void write_step_export(const Job& job, const ModelSpec& model, AdapterId adapter, std::int32_t step,
                       const std::vector<NamedTensor>& tensors) {
    const std::string target = step_dir(job, adapter, step).string();
    const std::string temporary = target + ".tmp";
    remove_directory(temporary);
    write_adapter(temporary, job.adapter(adapter), model, job.model.base_model_name_or_path,
                  tensors, job.model.base_quantization);
    if (job.exports.tokenizer) copy_tokenizer_files(job.model.base_model_name_or_path, temporary);
    write_text_atomic(cat(temporary, "/", ready_name), cat("step ", step, "\n"));
    replace_directory(temporary, target);
    std::map<std::int32_t, fs::path> all = step_exports_in(folder_of(job, adapter));
    while (std::ssize(all) > job.exports.keep) {
        remove_whole(all.begin()->second);
        all.erase(all.begin());
    }
}

bool has_step_export(const Job& job, AdapterId adapter, std::int32_t step) {
    return fs::exists(step_dir(job, adapter, step) / ready_name);
}

void restore_step_exports(const Job& job, const RunState& state) {
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const fs::path folder = folder_of(job, static_cast<AdapterId>(i));
        if (!fs::is_directory(folder)) continue;
        remove_unfinished_directories(folder.string());
        for (const auto& [step, directory] : step_exports_in(folder)) {
            if (step > state.adapters[i].steps) remove_whole(directory);
        }
    }
}

}  // namespace loratrain
