#include "train/checkpoint/background_checkpoint.h"

#include <chrono>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "base/system.h"
#include "base/threads.h"
#include "train/checkpoint/adapter_transfer.h"

namespace loratrain {

BackgroundCheckpoint::BackgroundCheckpoint(const Job& job, const Plan& plan,
                                           const RunIdentity& identity, std::int32_t round,
                                           const std::string& root)
    : job_(job), plan_(plan), writer_(job, identity, round, root) {}

BackgroundCheckpoint::~BackgroundCheckpoint() {
    if (writing_.valid()) writing_.wait();
}

void BackgroundCheckpoint::add(const PartKey& key, AdapterParts::ByRank values,
                               const AdapterBank::Counters& counters) {
    auto& parts = parts_[key.adapter];
    parts[key.part] = std::move(values);
    if (parts.size() < std::size(stored_parts)) return;
    write([this, adapter = key.adapter, parts = std::move(parts), counters]() mutable {
        std::vector<NamedTensor> stored;
        for (const StoredPart& part : stored_parts) {
            const AdapterParts::ByRank by_rank = std::move(parts.at(part.part));
            append_part(part,
                        join_values(job_, plan_, adapter, part.part,
                                    [&](std::int32_t rank) { return std::span(by_rank.at(rank)); }),
                        stored);
        }
        writer_.write(adapter, stored, counters);
    });
    parts_.erase(key.adapter);
}

void BackgroundCheckpoint::keep(AdapterId adapter) {
    write([this, adapter] { writer_.keep(adapter); });
}

void BackgroundCheckpoint::complete(RunState state) {
    write([this, state = std::move(state)] { writer_.complete(state); });
}

void BackgroundCheckpoint::write(std::function<void()> work) {
    auto before = std::make_shared<std::future<void>>(std::move(writing_));
    writing_ = std::async(std::launch::async, [this, before, work = std::move(work)] {
        if (before->valid()) before->get();
        const BackgroundWork background;
        const auto start = std::chrono::steady_clock::now();
        work();
        seconds_ += seconds_since(start);
    });
}

bool BackgroundCheckpoint::idle() const {
    return !writing_.valid() ||
           writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

double BackgroundCheckpoint::finish() {
    if (writing_.valid()) writing_.get();
    return seconds_;
}

}  // namespace loratrain
