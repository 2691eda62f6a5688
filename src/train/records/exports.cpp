#include "train/records/exports.h"

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
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
                  AdapterId adapter, const std::vector<NamedTensor>& tensors) {
    const std::string dir = export_dir(job, adapter);
    write_adapter(dir, job.adapter(adapter), model, job.model.base_model_name_or_path, tensors,
                  job.model.base_quantization);
    if (job.exports.tokenizer) copy_tokenizer_files(job.model.base_model_name_or_path, dir);
    write_text_atomic(cat(dir, "/", done_name), done_text(job.eval, state));
    log::info("exported " + dir);
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

}  // namespace loratrain
