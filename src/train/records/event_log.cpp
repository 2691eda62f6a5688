#include "train/records/event_log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/plain_file.h"
#include "base/system.h"
#include "base/text.h"
#include "io/files.h"
#include "io/run_files/event_file.h"
#include "io/run_files/status_file.h"

namespace loratrain {

namespace {

std::vector<Scalar> scalars_of(const MetricsRow& row) {
    std::vector<Scalar> scalars;
    auto add = [&](const char* tag, const std::optional<double>& value) {
        if (value) scalars.emplace_back(tag, *value);
    };
    add("train/loss", row.loss);
    add("train/grad_norm", row.grad_norm);
    add("train/learning_rate", row.learning_rate);
    add("train/tokens_per_second", row.tokens_per_second);
    add("train/epoch", row.epoch);
    add("eval/loss", row.eval_loss);
    if (row.eval_loss && row.eval_exact_match) {
        scalars.emplace_back("eval/perplexity", std::exp(*row.eval_loss));
    }
    add("eval/exact_match", row.eval_exact_match);
    add("train/rewards/accuracies", row.rewards_accuracies);
    add("train/rewards/margins", row.rewards_margins);
    add("train/ratio/mean", row.ratio);
    add("train/reward", row.reward);
    for (const auto& [key, value] : row.of_texts) scalars.emplace_back("train/" + key, value);
    add("train/clip_ratio/region_mean", row.clip_ratio);
    add("train/kl", row.kl);
    add("eval/rewards/accuracies", row.eval_rewards_accuracies);
    add("eval/rewards/margins", row.eval_rewards_margins);
    return scalars;
}

}  // namespace

EventLog::EventLog(const Job& job, double elapsed_seconds)
    : job_(job),
      start_(unix_time() - elapsed_seconds),
      file_name_(cat("/events.out.tfevents.", static_cast<std::int64_t>(unix_time()), ".",
                     host_name(), ".", ::getpid())) {}

std::string EventLog::file_of(AdapterId adapter) const {
    if (!job_.logging.tensorboard) return "";
    return cat(job_.run.dir, "/tensorboard/", job_.adapter(adapter).name, file_name_);
}

std::string EventLog::records(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    std::string text;
    double& written = written_[adapter];
    for (const MetricsRow& row : rows) {
        latest_time_ = std::max(latest_time_, row.elapsed_seconds.value_or(0.0));
        written = std::max(written, row.elapsed_seconds.value_or(latest_time_));
        text += scalar_event(start_ + written, row.step, scalars_of(row));
    }
    return text;
}

void EventLog::restart(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    const std::string file = file_of(adapter);
    if (file.empty()) return;
    const std::string folder = std::filesystem::path(file).parent_path().string();
    std::filesystem::remove_all(folder);
    make_directory(folder);
    latest_time_ = 0.0;
    written_.erase(adapter);
    write_text_atomic(file, event_file_header(start_) + records(adapter, rows));
}

void EventLog::append(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    const std::string file = file_of(adapter);
    if (file.empty() || rows.empty()) return;
    append_to_plain_file(file, records(adapter, rows));
}

}  // namespace loratrain
