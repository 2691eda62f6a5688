#include "train/checkpoint/best_adapter.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

fs::path best_dir(const Job& job, std::size_t adapter) {
    return fs::path(job.run.dir) / "adapters" / job.adapters[adapter].name / "best";
}

fs::path kept_file(const Job& job, std::size_t adapter, const std::string& checkpoint) {
    return fs::path(checkpoint) / kept_best_name(job.adapters[adapter]);
}

/// Whether an adapter's best/ with this checksum is not what the newest checkpoint has of the same
/// step.
bool is_damaged(const Job& job, const RunState& state, std::size_t adapter,
                const StoredFiles& stored, const std::string& checksum) {
    const std::string known = stored.checksum(kept_best_name(job.adapters[adapter]));
    if (known.empty() || known == checksum) return false;
    try {
        const std::string path = (stored.newest() / checkpoint_state_name).string();
        const RunState then = run_state_from_json(read_text(path), job, path);
        return then.adapters[adapter].best_step == state.adapters[adapter].best_step;
    } catch (const InputError&) {
        return false;
    }
}

/// Makes best/ of what `write` puts into a folder.
template <class Write>
void replace_best(const Job& job, const AdapterState& state, AdapterId adapter,
                  const Write& write) {
    write_directory_atomic(
        best_dir(job, index(adapter)).string(), [&](const std::string& temporary) {
            write(temporary);
            write_text_atomic(temporary + "/BEST", cat("step ", state.best_step, ", eval loss ",
                                                       format_exact(state.best_eval_loss), "\n"));
        });
}

}  // namespace

std::string kept_best_name(const AdapterJob& adapter) {
    return adapter.name + ".best";
}

void write_best_adapter(const Job& job, const ModelSpec& model, const AdapterState& state,
                        AdapterId adapter, std::vector<NamedTensor> tensors) {
    replace_best(job, state, adapter, [&](const std::string& folder) {
        write_adapter(folder, job.adapter(adapter), model, job.model.base_model_name_or_path,
                      std::move(tensors), job.model.base_quantization);
    });
}

void keep_best_adapters(const Job& job, const RunState& state, const std::string& checkpoint) {
    std::optional<StoredFiles> stored;
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const fs::path weights = best_dir(job, i) / adapter_weights_name;
        if (state.adapters[i].best_step == 0 || !fs::exists(weights)) continue;
        if (!stored) stored.emplace(fs::path(checkpoint).parent_path());
        const fs::path kept = kept_file(job, i, checkpoint);
        const std::string checksum = copy_bytes(weights.string(), kept.string());
        if (!is_damaged(job, state, i, *stored, checksum)) continue;
        log::warn(weights.string() +
                  " is damaged; the new checkpoint takes the copy in the one before");
        if (stored->copy(kept.filename().string(), checkpoint).empty()) {
            throw Error(weights.string() + ": is damaged, and so is its copy in " +
                        stored->newest().string());
        }
    }
}

void restore_best_adapter(const Job& job, const ModelSpec& model, const RunState& state,
                          AdapterId adapter, const std::string& checkpoint) {
    const std::size_t i = index(adapter);
    const fs::path folder = best_dir(job, i).parent_path();
    if (fs::is_directory(folder)) remove_unfinished_directories(folder.string());
    const fs::path kept = kept_file(job, i, checkpoint);
    if (checkpoint.empty() || !fs::exists(kept)) {
        fs::remove_all(best_dir(job, i));
        return;
    }
    replace_best(job, state.adapters[i], adapter, [&](const std::string& best) {
        write_exported_adapter(best, job.adapter(adapter), model, job.model.base_model_name_or_path,
                               kept.string());
    });
}

void restore_best_adapters(const Job& job, const ModelSpec& model, const RunState& state,
                           const std::string& checkpoint) {
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        restore_best_adapter(job, model, state, static_cast<AdapterId>(i), checkpoint);
    }
}

}  // namespace loratrain
