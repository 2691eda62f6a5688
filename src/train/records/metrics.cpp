#include "train/records/metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/plain_file.h"
#include "base/text.h"
#include "io/files.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

/// JSON has no infinity or NaN: those become null.
std::string json_number(double value) {
    return std::isfinite(value) ? format_exact(value) : "null";
}

std::string step_fields(const StepMetrics& m) {
    return cat("\"step\": ", m.step, ", \"epoch\": ", json_number(m.epoch),
               ", \"loss\": ", json_number(m.loss), ", \"grad_norm\": ", json_number(m.grad_norm),
               ", \"learning_rate\": ", json_number(m.learning_rate),
               ", \"target_tokens\": ", m.target_tokens, ", \"tokens\": ", m.tokens,
               ", \"tokens_per_second\": ", format_fixed(m.tokens_per_second, 1),
               ", \"elapsed_seconds\": ", format_fixed(m.elapsed_seconds, 3),
               m.stale_rollouts ? cat(", \"stale_rollouts\": ", *m.stale_rollouts) : "");
}

std::string reward_fields(const std::string& prefix, const LossJob& loss,
                          const RewardMeans& means) {
    const std::pair<const char*, double> values[] = {
        {"rewards/chosen", means.chosen},
        {"rewards/rejected", means.rejected},
        loss.is_of_pairs() ? std::pair("rewards/accuracies", means.accuracies)
                           : std::pair("kl", means.kl),
        {"rewards/margins", means.margin()},
        {"logps/chosen", means.logps_chosen},
        {"logps/rejected", means.logps_rejected},
    };
    std::string fields;
    for (const auto& [key, value] : values) {
        fields += cat(", \"", prefix, key, "\": ", json_number(value));
    }
    return fields;
}

std::string rollout_fields(const LossJob& loss, const RewardMeans& means) {
    std::string fields = cat(", \"ratio/mean\": ", json_number(means.ratio),
                             ", \"ratio/max\": ", json_number(means.largest_ratio),
                             ", \"entropy\": ", json_number(means.entropy));
    if (loss.has_clip()) {
        fields += cat(", \"clip_ratio/region_mean\": ", json_number(means.clipped));
    }
    if (loss.has_reference()) fields += cat(", \"kl\": ", json_number(means.kl));
    return fields;
}

std::string text_fields(const RolloutMeans& means) {
    std::string fields = cat(", \"reward\": ", json_number(means.reward),
                             ", \"reward_std\": ", json_number(means.deviation),
                             ", \"frac_reward_zero_std\": ", json_number(means.equal_groups),
                             ", \"completions/mean_length\": ", json_number(means.length),
                             ", \"completions/clipped_ratio\": ", json_number(means.cut_off));
    for (const auto& [name, mean] : means.parts) {
        fields += cat(", ", Json(cat("rewards/", name, "/mean")).dump(), ": ", json_number(mean));
    }
    if (means.sample_seconds) {
        fields += cat(", \"sample_seconds\": ", format_fixed(*means.sample_seconds, 3));
    }
    if (means.reward_seconds) {
        fields += cat(", \"reward_seconds\": ", format_fixed(*means.reward_seconds, 3));
    }
    return fields;
}

/// A line of metrics.jsonl.
struct FileLine {
    MetricsRow row;
    std::string text;
};

/// Evaluations that are packed otherwise differ in their last digits.
bool is_same(double a, double b) {
    constexpr double difference = 1e-6;
    return std::fabs(a - b) <= difference * std::fabs(b) || (std::isnan(a) && std::isnan(b));
}

/// What the next line of the same step says too.
bool has_same_evaluation(const FileLine& a, const FileLine& b) {
    const bool both = a.row.step == b.row.step && a.row.eval_loss && b.row.eval_loss;
    return both && !b.row.loss && is_same(*a.row.eval_loss, *b.row.eval_loss);
}

/// The whole ones of a file by their steps, evaluations behind their steps, each once.
std::vector<FileLine> lines_in_order(const std::string& text) {
    std::vector<FileLine> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        if (const auto row = metrics_row(line)) lines.push_back({*row, line});
    }
    std::stable_sort(lines.begin(), lines.end(), [](const FileLine& a, const FileLine& b) {
        return std::pair(a.row.step, !a.row.loss) < std::pair(b.row.step, !b.row.loss);
    });
    lines.erase(std::unique(lines.begin(), lines.end(), has_same_evaluation), lines.end());
    return lines;
}

std::string joined(const std::vector<FileLine>& lines) {
    std::string text;
    for (const FileLine& line : lines) text += line.text + '\n';
    return text;
}

/// As a line of its own.
std::string evaluation_in(const FileLine& line) {
    const std::size_t begin = line.text.find("\"eval_loss\"");
    return cat("{\"step\": ", line.row.step, ", ", line.text.substr(begin));
}

std::string file_fields(const char* key, const std::vector<DataFile>& files,
                        const FileLosses& losses) {
    std::string fields;
    for (std::size_t f = 0; f < losses.size() && f < files.size(); ++f) {
        fields += cat(", ", Json(cat(key, "/", files[f].name)).dump(), ": ",
                      json_number(losses[f].loss()));
    }
    return fields;
}

}  // namespace

std::string MetricsLog::path(AdapterId adapter) const {
    return job_.run.dir + "/adapters/" + job_.adapter(adapter).name + "/metrics.jsonl";
}

std::vector<MetricsRow> MetricsLog::restore(AdapterId adapter, std::int32_t steps,
                                            const std::set<std::int32_t>& ahead) {
    std::vector<MetricsRow> rows;
    const std::string file = path(adapter);
    if (!std::filesystem::exists(file)) return rows;
    const std::string text = read_text(file);
    std::vector<FileLine> lines = lines_in_order(text);
    std::erase_if(lines, [&](FileLine& line) {
        if (line.row.step <= steps) return false;
        if (!line.row.eval_loss || !ahead.contains(line.row.step)) return true;
        line.text = evaluation_in(line);
        ahead_[{adapter, line.row.step}] = line.text.substr(1, line.text.size() - 2);
        return false;
    });
    const std::string kept = joined(lines);
    if (kept != text) write_text_atomic(file, kept);
    for (const FileLine& line : lines) {
        if (line.row.step > steps) break;
        rows.push_back(line.row);
        if (line.row.eval_loss) last_evaluations_[adapter] = {line.row.step, *line.row.eval_loss};
    }
    return rows;
}

/// Lines that were written before their steps.
void MetricsLog::put_in_order(AdapterId adapter) const {
    const std::string file = path(adapter);
    write_text_atomic(file, joined(lines_in_order(read_text(file))));
}

bool MetricsLog::is_new(AdapterId adapter, std::int32_t step, double eval_loss) {
    const std::pair now{step, eval_loss};
    const auto [last, added] = last_evaluations_.try_emplace(adapter, now);
    if (added) return true;
    const auto before = std::exchange(last->second, now);
    return before.first != step || !is_same(before.second, eval_loss);
}

void MetricsLog::note_rollouts(AdapterId adapter, std::int32_t step, const RolloutMeans& means) {
    rollouts_[{adapter, step}] = text_fields(means);
}

void MetricsLog::record(AdapterId adapter, const StepMetrics& metrics) {
    Line& line = pending_[adapter].emplace_back(Line{metrics.step, step_fields(metrics)});
    const auto rollouts = rollouts_.extract({adapter, metrics.step});
    if (rollouts) line.fields += rollouts.mapped();
    if (job_.has_step_details(adapter)) {
        const auto details = details_.extract({adapter, metrics.step});
        line.lacks_details = details.empty();
        if (details) line.fields += details.mapped();
    }
    const bool awaited = awaited_.erase({adapter, metrics.step}) > 0;
    if (awaited) pending_[adapter].push_back({metrics.step, ""});
    const auto known = ahead_.extract({adapter, metrics.step});
    if (!known) return;
    out_of_order_.insert(adapter);
    if (!awaited) pending_[adapter].push_back({metrics.step, known.mapped()});
}

std::string MetricsLog::eval_loss_fields(AdapterId adapter, double eval_loss,
                                         const FileLosses& files) const {
    return cat("\"eval_loss\": ", json_number(eval_loss)) +
           file_fields("eval_loss", dataset_of(adapter).evaluated_files(), files);
}

void MetricsLog::record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                                   double exact_match, const FileLosses& files) {
    if (!is_new(adapter, step, eval_loss)) return;
    add_evaluation(adapter, step,
                   eval_loss_fields(adapter, eval_loss, files) +
                       cat(", \"eval_perplexity\": ", json_number(std::exp(eval_loss)),
                           ", \"eval_exact_match\": ", json_number(exact_match)));
}

void MetricsLog::record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                                   const RewardMeans& means, const FileLosses& files) {
    if (!is_new(adapter, step, eval_loss)) return;
    add_evaluation(adapter, step,
                   eval_loss_fields(adapter, eval_loss, files) +
                       reward_fields("eval_", job_.adapter(adapter).loss, means));
}

void MetricsLog::record_details(AdapterId adapter, std::int32_t step, const RewardMeans& means,
                                const FileLosses& files) {
    const LossJob& loss = job_.adapter(adapter).loss;
    std::string fields = loss.has_rewards() ? reward_fields("", loss, means) : "";
    if (loss.is_of_rollouts()) fields += rollout_fields(loss, means);
    if (loss.is_contrastive()) {
        fields += cat(", \"contrastive_loss\": ", json_number(means.compared));
    }
    if (!files.empty()) fields += file_fields("loss", dataset_of(adapter).files, files);
    auto& lines = pending_[adapter];
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
        return l.step == step && l.lacks_details;
    });
    if (line == lines.end()) {
        details_[{adapter, step}] = fields;
    } else {
        line->fields += fields;
        line->lacks_details = false;
    }
}

/// Where its step's line is not yet written, it joins that one.
void MetricsLog::add_evaluation(AdapterId adapter, std::int32_t step, const std::string& fields) {
    const std::string own_line = cat("\"step\": ", step, ", ", fields);
    auto& lines = pending_[adapter];
    const auto of_step = [&](const Line& l) { return l.step == step; };
    const auto awaited = std::find_if(
        lines.begin(), lines.end(), [&](const Line& l) { return of_step(l) && l.fields.empty(); });
    const auto line = std::find_if(lines.begin(), lines.end(), of_step);
    if (awaited != lines.end()) {
        awaited->fields = own_line;
    } else if (line == lines.end()) {
        lines.push_back({step, own_line});
    } else {
        line->fields += ", " + fields;
    }
}

std::map<AdapterId, std::vector<MetricsRow>> MetricsLog::flush(
    const std::function<void(AdapterId, const std::string&)>& also) {
    std::map<AdapterId, std::vector<MetricsRow>> rows;
    for (auto& [adapter, lines] : pending_) {
        const auto end = std::find_if(lines.begin(), lines.end(),
                                      [](const Line& line) { return !line.is_complete(); });
        if (end == lines.begin()) continue;
        std::string written;
        for (auto line = lines.begin(); line != end; ++line) {
            const std::string text = "{" + line->fields + "}";
            written += text + '\n';
            if (also) also(adapter, text);
            rows[adapter].push_back(metrics_row(text).value());
        }
        append_to_plain_file(path(adapter), written);
        if (out_of_order_.erase(adapter) > 0) put_in_order(adapter);
        lines.erase(lines.begin(), end);
    }
    return rows;
}

}  // namespace loratrain
