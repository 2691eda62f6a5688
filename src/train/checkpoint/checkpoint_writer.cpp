#include "train/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/system.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "train/checkpoint/adapter_transfer.h"
#include "train/checkpoint/best_adapter.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* temporary_suffix = ".tmp";

void write_manifest(const fs::path& dir, const RunIdentity& identity,
                    const std::map<std::string, std::string>& known) {
    OrderedJson manifest;
    manifest["format"] = checkpoint_format;
    manifest["weights_checksum"] = identity.weights_checksum;
    manifest["data_checksums"] = identity.data_checksums;
    OrderedJson& files = manifest["files"] = OrderedJson::object();
    for (const auto& entry : fs::directory_iterator(dir)) {
        const std::string name = entry.path().filename().string();
        const bool hidden = name.starts_with('.');  // a removed file that somebody has open, on NFS
        if (hidden) continue;
        const auto found = known.find(name);
        files[name] = found != known.end() ? found->second : file_checksum(entry.path().string());
    }
    write_text_atomic((dir / checkpoint_manifest_name).string(), dump_json(manifest, 2) + "\n");
}

/// All but the newest `keep` up to `round`. Those beyond it belong to a continuation that was given
/// up by restarting from an older checkpoint.
void remove_old(const fs::path& folder, int keep, std::int64_t round) {
    std::vector<std::int64_t> rounds = stored_rounds(folder);
    const auto abandoned = std::partition(rounds.begin(), rounds.end(),
                                          [&](std::int64_t other) { return other <= round; });
    for (auto other = abandoned; other != rounds.end(); ++other) {
        remove_directory((folder / std::to_string(*other)).string());
    }
    rounds.erase(abandoned, rounds.end());
    std::sort(rounds.begin(), rounds.end(), std::greater<>());
    for (auto i = static_cast<std::size_t>(keep); i < rounds.size(); ++i) {
        remove_directory((folder / std::to_string(rounds[i])).string());
    }
}

}  // namespace

void append_part(const StoredPart& part, std::vector<TensorSource> tensors,
                 std::vector<TensorSource>& stored) {
    for (TensorSource& tensor : tensors) {
        tensor.name += part.suffix;
        stored.push_back(std::move(tensor));
    }
}

CheckpointWriter::CheckpointWriter(const Job& job, const RunIdentity& identity, std::int32_t round,
                                   const std::string& root)
    : job_(job),
      identity_(identity),
      folder_(root.empty() ? checkpoint_folder(job) : fs::path(root)),
      target_(folder_ / std::to_string(round)),
      temporary_(target_.string() + temporary_suffix) {
    const std::string folder = folder_.string();
    make_directory(folder);
    remove_unfinished_writes(folder);
    remove_unfinished_directories(folder);
    make_directory(temporary_.string());
}

CheckpointWriter::~CheckpointWriter() {
    remove_directory(temporary_.string());  // of one that was not completed
}

void CheckpointWriter::write(AdapterId adapter, const std::vector<TensorSource>& stored,
                             const AdapterBank::Counters& counters) {
    const std::string name = stored_adapter_name(job_.adapter(adapter));
    std::string checksum = write_stored_adapter((temporary_ / name).string(), stored, counters);
    const std::scoped_lock lock(checksums_are_in_use_);
    checksums_[name] = std::move(checksum);
}

void CheckpointWriter::keep(AdapterId adapter) {
    if (job_.adapter(adapter).trial) return;
    const std::string name = stored_adapter_name(job_.adapter(adapter));
    if (!stored_) stored_.emplace(folder_);
    std::string checksum = stored_->copy(name, temporary_);
    if (!checksum.empty()) {
        const std::scoped_lock lock(checksums_are_in_use_);
        checksums_[name] = std::move(checksum);
        return;
    }
    throw Error(cat((newest_stored(folder_) / name).string(),
                    ": is damaged (its checksum differs from the manifest), and no checkpoint "
                    "before has the same; the same command continues from an older one"));
}

void CheckpointWriter::complete(const RunState& state) {
    write_text_atomic((temporary_ / checkpoint_state_name).string(), to_json(state, job_));
    write_text_atomic((temporary_ / checkpoint_job_name).string(), identity_.job_yaml);
    keep_best_adapters(job_, state, temporary_.string());
    write_manifest(temporary_, identity_, checksums_);
    replace_directory(temporary_.string(), target_.string());
    set_latest_round(folder_, state.round);
    remove_old(folder_, job_.checkpoint.keep, state.round);
}

BackgroundCheckpoint::BackgroundCheckpoint(const Job& job, const Plan& plan,
                                           const RunIdentity& identity, std::int32_t round,
                                           const std::string& root, Beside beside)
    : job_(job), plan_(plan), writer_(job, identity, round, root), beside_(beside) {}

BackgroundCheckpoint::~BackgroundCheckpoint() {
    for (const std::shared_future<void>& file : writing_) file.wait();
}

void BackgroundCheckpoint::add(const PartKey& key, AdapterParts::ByRank values,
                               const AdapterBank::Counters& counters) {
    auto& parts = parts_[key.adapter];
    parts[key.part] = std::move(values);
    if (parts.size() < std::size(stored_parts)) return;
    auto work = [this, adapter = key.adapter, parts = std::move(parts), counters]() mutable {
        std::vector<TensorSource> stored;
        for (const StoredPart& part : stored_parts) {
            const AdapterParts::ByRank& by_rank = parts.at(part.part);
            append_part(part,
                        tensors_of(job_, plan_, adapter, part.part,
                                   [&](std::int32_t rank) { return std::span(by_rank.at(rank)); }),
                        stored);
        }
        writer_.write(adapter, stored, counters);
        parts.clear();  // not kept until the next write
    };
    write(std::move(work), beside_ == Beside::nothing);
    parts_.erase(key.adapter);
}

void BackgroundCheckpoint::keep(AdapterId adapter) {
    write([this, adapter] { writer_.keep(adapter); });
}

void BackgroundCheckpoint::complete(RunState state) {
    write([this, state = std::move(state)] { writer_.complete(state); });
}

void BackgroundCheckpoint::write(std::function<void()> work, bool beside_others) {
    std::vector<std::shared_future<void>> before;
    if (!beside_others) before = writing_;
    writing_.push_back(std::async(std::launch::async, [this, before, work = std::move(work)] {
        for (const std::shared_future<void>& file : before) file.get();
        const auto start = std::chrono::steady_clock::now();
        work_beside(beside_, work);
        seconds_ += seconds_since(start);
    }));
}

bool BackgroundCheckpoint::idle() const {
    return std::ranges::all_of(writing_, [](const std::shared_future<void>& file) {
        return file.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
}

void BackgroundCheckpoint::wait_for_all_but(std::size_t files) {
    while (writing_.size() > files) {
        writing_.front().get();
        writing_.erase(writing_.begin());
    }
}

double BackgroundCheckpoint::finish() {
    wait_for_all_but(0);
    return seconds_;
}

}  // namespace loratrain
