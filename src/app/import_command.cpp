#include "app/import_command.h"

#include "base/log.h"
#include "comm/collective.h"
#include "config/job_words.h"
#include "io/weights/import_hf.h"

namespace loratrain {

namespace {

/// ", linears in nf4 of bf16".
std::string quantization_text(const ImportReport& report) {
    if (!report.quantization) return "";
    return cat(", linears in ", to_string(*report.quantization));
}

}  // namespace

ExitCode import_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        const ImportReport report =
            import_hf(command_line.hf_dir, command_line.output,
                      {command_line.force, command_line.store_bf16, command_line.base_model_name,
                       quantized_format(command_line.quantize)});
        log::info(cat("wrote ", command_line.output, ": ", report.family, ", ", report.tensors,
                      " tensors", quantization_text(report), ", ", human_bytes(report.bytes)));
        if (!report.wrapper.empty()) {
            log::info(cat("took the text model of a ", report.wrapper, " and left out ",
                          report.ignored, " other tensors; adapters name modules as ",
                          report.wrapper, " does"));
        }
        if (!report.renamed.empty()) {
            log::info(cat("renamed tensors to what transformers writes: ", report.renamed,
                          ", and the others likewise"));
        }
        for (const std::string& note : report.notes) log::warn(note);
        log::info(cat(
            "adapters trained on it will name ", report.base_model_name, " as their base model",
            command_line.base_model_name.empty() ? " (--base-model-name NAME changes that)" : ""));
        if (report.base_is_quantized) {
            log::warn(
                "config.json of this quantised folder does not name the model that it was made of, "
                "so "
                "adapters will name the quantised one; --base-model-name NAME changes that");
        }
    });
    return ExitCode::done;
}

}  // namespace loratrain
