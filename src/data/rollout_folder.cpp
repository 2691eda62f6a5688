#include "data/rollout_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* end_name = "END";
constexpr std::string_view prefix = "step-";
constexpr const char* stays_hint =
    "put the file back: files that an adapter has trained on must stay until the run ends";

/// none = no file of rollouts.
std::optional<std::int32_t> number_of(const fs::path& file) {
    const std::string extension = file.extension().string();
    const bool known = extension == ".jsonl" || extension == ".h5" || extension == ".hdf5";
    const std::optional<std::int32_t> number = number_after(file.stem().string(), prefix);
    return known && number != INT32_MAX ? number : std::nullopt;
}

}  // namespace

RolloutFolder::RolloutFolder(Settings settings, const Start& start)
    : settings_(std::move(settings)),
      step_(start.step - start.file_batches),
      skipped_(start.file_batches),
      next_number_(start.file) {}

bool has_rollouts(const std::string& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (number_of(entry->path())) return true;
    }
    return false;
}

std::optional<RolloutFolder::Batch> RolloutFolder::next() {
    reads_on_ = false;
    while (file_ || open_next()) {
        std::optional<Batch> batch = cut();
        if (!batch) {
            file_.reset();
            if (skipped_ > 0) {
                throw InputError(
                    path_, cat("lacks ", skipped_, " batches that the adapter has trained on"),
                    stays_hint);
            }
            reads_on_ = batches_ == 0;
            if (reads_on_) return std::nullopt;
            continue;
        }
        if (skipped_ == 0) return batch;
        --skipped_;
    }
    return std::nullopt;
}

bool RolloutFolder::open_next() {
    const std::string path = look();
    if (path.empty()) {
        if (skipped_ == 0 || !trouble_.empty()) return false;
        throw InputError(awaited(), cat("is gone, and ", skipped_, " of its batches are trained"),
                         stays_hint);
    }
    Dataset file(path, settings_.dataset, settings_.vocab_size);
    if (!file.is_rollouts()) {
        throw InputError(path, "holds no rollouts", "give each line advantages and logprobs");
    }
    file_ = std::move(file);
    path_ = path;
    next_number_ = number_ + 1;
    row_ = batches_ = 0;
    return true;
}

std::string RolloutFolder::look() {
    const std::string& folder = settings_.dataset.path;
    std::error_code error;
    const bool ended = fs::exists(folder + end_name, error);  // what came before it is seen now
    std::map<std::int32_t, std::string> next;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::optional<std::int32_t> number = number_of(entry->path());
        if (!number) continue;
        const bool is_new = known_.insert(*number).second;
        if (*number < next_number_) {
            if (is_new && listed_) late_.push_back(entry->path().string());
            continue;
        }
        const auto [other, added] = next.emplace(*number, entry->path().string());
        if (!added) {
            throw InputError(entry->path().string(), cat("has the number of ", other->second),
                             "remove one of them");
        }
    }
    trouble_ = error ? cat(folder, " cannot be read: ", error.message()) : "";
    over_ = !error && next.empty() && ended;
    if (error) return "";
    listed_ = true;
    if (next.empty()) return "";
    const bool is_other = skipped_ > 0 && next.begin()->first != next_number_;
    // A file of the job is the batch of its own step.
    const bool is_later = settings_.dataset.made_in_job && next.begin()->first != step_;
    if (is_other || is_later) return "";
    number_ = next.begin()->first;
    return next.begin()->second;
}

bool RolloutFolder::is_stale(const TokenSample& sample) const {
    const std::int32_t sampled_at = sample.adapter_step.value_or(number_);
    return settings_.max_staleness && step_ - sampled_at > *settings_.max_staleness;
}

/// None where all that is left of the file is too stale.
std::optional<RolloutFolder::Batch> RolloutFolder::cut() {
    Batch batch;
    const auto rows = static_cast<std::int32_t>(file_->infos().size());
    while (row_ < rows && std::ssize(batch.samples) < settings_.batch_size) {
        TokenSample sample = file_->read(row_);
        const SampleInfo& info = file_->infos()[static_cast<std::size_t>(row_++)];
        if (is_stale(sample)) {
            ++stale_;
            continue;
        }
        batch.samples.push_back(std::move(sample));
        batch.info.samples.push_back(info);
    }
    if (batch.samples.empty()) return std::nullopt;
    ++step_;
    batch.info.file = number_;
    batch.info.of_file = batches_++;
    batch.info.ends_file = nothing_follows();
    batch.info.stale = std::exchange(stale_, 0);
    return batch;
}

/// All that is left of the file is too stale for the next step, and so for all that follow: it is
/// left out with the batch before, and nobody needs the file again.
bool RolloutFolder::nothing_follows() {
    const auto rows = static_cast<std::int32_t>(file_->infos().size());
    std::int32_t fresh = row_;
    if (settings_.max_staleness) {
        while (fresh < rows && is_stale(file_->read(fresh))) ++fresh;
    }
    if (fresh < rows) return false;
    stale_ += rows - row_;
    row_ = rows;
    return true;
}

std::vector<std::string> RolloutFolder::take_late() {
    return std::exchange(late_, {});
}

std::string RolloutFolder::awaited() const {
    return cat(settings_.dataset.path, prefix, next_number_, ".jsonl");
}

}  // namespace loratrain
