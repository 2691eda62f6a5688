#include "app/commands.h"

#include <string>
#include <vector>

#include "base/log.h"
#include "comm/collective.h"
#include "config/job_words.h"
#include "io/adapters/adapter_file.h"
#include "io/adapters/loader_rules.h"
#include "io/adapters/merge_adapter.h"
#include "io/weights/base_weights.h"
#include "io/weights/import_hf.h"

namespace loratrain {

namespace {

/// ", linear layers in nf4 of bf16".
std::string quantization_text(const ImportReport& report) {
    if (!report.quantization) return "";
    return cat(", linear layers in ", to_string(*report.quantization));
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

namespace {

std::string loader_result_text(const LoaderResult& result) {
    if (!result.unknown.empty() && result.obstacles.empty()) {
        return cat(result.loader, ": unknown: ", result.unknown);
    }
    std::string text = cat(result.loader, ": ",
                           result.loads() ? "loads it" : "does not load it as it was trained");
    for (const std::string& obstacle : result.obstacles) text += cat("\n  because: ", obstacle);
    for (const std::string& advice : result.advice) text += cat("\n  ", advice);
    return text;
}

}  // namespace

ExitCode check_export_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        require_adapter_directory(command_line.run_dir);
        const auto base = open_base_weights(command_line.base);
        for (const LoaderResult& result : check_loaders(command_line.run_dir, base->spec())) {
            log::block(loader_result_text(result));
        }
    });
    return ExitCode::done;
}

namespace {

/// Says what is left of the changes.
void tell_surviving(const ChangesOfModules& changes) {
    const std::optional<SurvivingChange> all = surviving_of_all(changes);
    if (!all) return log::warn("the adapter changes no weight: every B is 0");
    log::info(
        cat("what the written weights keep of the trained changes (share: 1 = all, 0 = nothing; "
            "cosine near 0: errors of rounding are larger than the change); ",
            surviving_changes_name, " lists every linear layer:"));
    log::block(surviving_text(surviving_of_kinds(changes)));
    if (all->share >= share_that_is_little) return;
    log::warn(cat("over all linear layers the share is ", format_fixed(all->share, 2),
                  ": most of what the adapter learned is rounded away; merge with more bits, or "
                  "serve base and adapter apart, which loses nothing"));
}

}  // namespace

ExitCode merge_command(const CommandLine& command_line, const MpiSession& mpi) {
    agree(mpi, [&] {
        if (!mpi.is_root()) return;
        require_adapter_directory(command_line.run_dir);
        const auto base = open_base_weights(command_line.base);
        const MergeReport report =
            merge_adapter(command_line.run_dir, *base, command_line.output,
                          {value_of(merged_form_words, command_line.quantize)});
        log::info(cat("wrote ", command_line.output, ": ", report.modules, " modules with LoRA, ",
                      report.files, report.files == 1 ? " file of " : " files of ",
                      human_bytes(report.bytes)));
        if (!command_line.quantize.empty()) tell_surviving(report.changes);
    });
    return ExitCode::done;
}

}  // namespace loratrain
