#include "train/records/exports.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/adapters/adapter_file.h"
#include "io/adapters/exported_adapter.h"
#include "io/files.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* done_name = "DONE";

std::string export_dir(const Job& job, AdapterId adapter) {
    return job.run.dir + "/adapters/" + job.adapter(adapter).name;
}

/// InputError unless the directory holds these tensors, bit by bit.
void check_export(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model,
                  const std::vector<NamedTensor>& tensors) {
    const AdapterFile fits(dir, exported_job(adapter), model);
    const SafetensorsFile file(cat(dir, "/", adapter_weights_name));
    Problems problems;
    for (const NamedTensor& tensor : exported_tensors(adapter, model, tensors)) {
        const std::vector<float> values = file.read_floats(tensor.name);
        const bool same =
            values.size() == tensor.values.size() &&
            std::memcmp(values.data(), tensor.values.data(), values.size() * sizeof(float)) == 0;
        if (!same) {
            problems.add(file.path() + ":" + tensor.name, "is not what the checkpoint has");
            break;
        }
    }
    if (!fs::exists(cat(dir, "/", done_name))) problems.add(dir, "has no file DONE");
    problems.throw_if_any();
}

}  // namespace

void write_export(const Job& job, const ModelSpec& model, const AdapterState& state,
                  AdapterId adapter, std::vector<NamedTensor> tensors) {
    const std::string dir = export_dir(job, adapter);
    write_adapter(dir, job.adapter(adapter), model, job.model.base_model_name_or_path,
                  std::move(tensors), job.model.base_quantization);
    if (job.exports.tokenizer) copy_tokenizer_files(job.model.base_model_name_or_path, dir);
    write_text_atomic(cat(dir, "/", done_name), done_text(job.eval, state));
    if (job.adapters.size() <= most_logged_exports) log::info("exported " + dir);
}

void mend_exports(const Job& job, const ModelSpec& model, const RunState& state,
                  const std::string& checkpoint) {
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const auto id = static_cast<AdapterId>(i);
        const fs::path stored = fs::path(checkpoint) / stored_adapter_name(job.adapters[i]);
        const bool exported =
            is_exportable(state.adapters[i].status) && state.adapters[i].steps > 0;
        if (!exported || !fs::exists(stored)) continue;
        const auto tensors = stored_parameters(stored.string(), job.adapters[i], model);
        try {
            check_export(export_dir(job, id), job.adapters[i], model, tensors);
        } catch (const InputError& error) {
            log::warn(cat("this export is damaged and is written again: ",
                          to_string(error.problems().front())));
            write_export(job, model, state.adapters[i], id, tensors);
        }
    }
}

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
        const std::optional<std::int32_t> step = number_after(name, step_prefix);
        if (step && entry.is_directory()) found.emplace(*step, entry.path());
    }
    return found;
}

}  // namespace

void write_step_export(const Job& job, const ModelSpec& model, AdapterId adapter, std::int32_t step,
                       std::vector<NamedTensor> tensors) {
    const std::string& base = job.model.base_model_name_or_path;
    write_directory_atomic(
        step_dir(job, adapter, step).string(), [&](const std::string& temporary) {
            write_adapter(temporary, job.adapter(adapter), model, base, std::move(tensors),
                          job.model.base_quantization);
            if (job.exports.tokenizer) copy_tokenizer_files(base, temporary);
            write_text_atomic(cat(temporary, "/", ready_name), cat("step ", step, "\n"));
        });
    std::map<std::int32_t, fs::path> all = step_exports_in(folder_of(job, adapter));
    while (std::ssize(all) > job.exports.keep) {
        remove_directory_atomic(all.begin()->second.string());
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
            if (step > state.adapters[i].steps) remove_directory_atomic(directory.string());
        }
    }
}

void BackgroundExports::begin(AdapterId adapter, Beside beside, std::function<void()> write) {
    writing_.push_back({adapter, std::async(std::launch::async, [beside, own = std::move(write)] {
                            work_beside(beside, own);
                        })});
}

std::vector<AdapterId> BackgroundExports::take_written() {
    std::vector<AdapterId> written;
    std::erase_if(writing_, [&written](Writing& writing) {
        const auto at_once = std::chrono::seconds(0);
        if (writing.files.wait_for(at_once) != std::future_status::ready) return false;
        try {
            writing.files.get();
        } catch (...) {
            activity::begin(activity::Task::export_adapter, number(writing.adapter));
            throw;
        }
        written.push_back(writing.adapter);
        return true;
    });
    return written;
}

void BackgroundExports::wait() const {
    for (const Writing& writing : writing_) writing.files.wait();
}

}  // namespace loratrain
