#include "train/services/exports.h"

#include <algorithm>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

constexpr double seconds_between_lines = 10.0;

}  // namespace

void ExportService::before_window(std::int32_t round, const std::vector<AdapterId>& stepped) {
    for (const AdapterId a : stepped) {
        StreamPart& stream = worker_.adapters[a].stream;
        const bool comes_again = worker_.adapters.trains_beyond(a, round);
        if (stream.phase() == Phase::training && !comes_again) stream.enter(Phase::stepped);
    }
    const std::vector<AdapterId> ended = complete(stepped);
    for (const AdapterId a : ended) worker_.adapters[a].stream.enter(Phase::exporting);
    worker_.services->dispatch.look_for_ends();
    for (const AdapterId a : ended) worker_.stream.send_parameters(a);
}

/// Of those whose last step is taken everywhere, the ones whose results have come, are good, and
/// are wanted.
std::vector<AdapterId> ExportService::complete(const std::vector<AdapterId>& stepped) {
    std::vector<AdapterId> ended;
    for (const AdapterId a : stepped) {
        const AdapterRun& run = worker_.adapters[a];
        const bool pruned = run.state.status == AdapterStatus::pruned;
        const bool known = pruned || worker_.adapters.is_evaluated(a);
        if (run.stream.phase() != Phase::stepped || !known) continue;
        if (worker_.adapters.steps_to_come(a) > 0) continue;
        if (run.state.status == AdapterStatus::running) worker_.services->steps.decide_end(a);
        if (is_exportable(run.state.status)) ended.push_back(a);
    }
    std::erase_if(ended, [this](AdapterId a) { return !worker_.sweep.is_wanted(a); });
    return ended;
}

void ExportService::on_part(const PartKey& key, AdapterParts::ByRank& values) {
    if (key.use != PartUse::exported) return;
    const AdapterId adapter = key.adapter;
    if (!in_stream_) return write(adapter, values);
    // Who waits for DONE reads metrics then.
    const bool files_are_awaited = worker_.sweep.records_ends();
    if (files_are_awaited) worker_.journal.flush();
    const activity::Inside exporting(activity::Task::export_adapter, number(adapter));
    const std::int32_t steps = worker_.state(adapter).steps;
    BestService& bests = worker_.services->bests;
    if (bests.is_best(adapter, steps)) bests.keep({adapter, steps}, values);
    if (!files_are_awaited) return write_in_background(adapter, std::move(values));
    write(adapter, values);
    worker_.services->dispatch.on_ends({adapter});
}

void ExportService::write(AdapterId adapter, const AdapterParts::ByRank& values) {
    const activity::Inside exporting(activity::Task::export_adapter, number(adapter));
    write_export(worker_.parts.job, worker_.parts.plan.model, worker_.state(adapter), adapter,
                 worker_.ranks.join(adapter, values));
    note_written(adapter);
}

void ExportService::note_written(AdapterId adapter) {
    worker_.adapters[adapter].stream.enter(Phase::written);
    ++unlogged_;
    if (seconds_since(last_line_) > seconds_between_lines) log_written();
}

void ExportService::log_written() {
    const Job& job = worker_.parts.job;
    if (unlogged_ > 0 && job.adapters.size() > most_logged_exports) {
        log::info(cat("exported ", unlogged_, " adapter", unlogged_ > 1 ? "s" : "", " to ",
                      job.run.dir, "/adapters"));
    }
    unlogged_ = 0;
    last_line_ = std::chrono::steady_clock::now();
}

/// The pipeline would stand still for as long as tensors are put together and written.
void ExportService::write_in_background(AdapterId adapter, AdapterParts::ByRank values) {
    writing_.begin(adapter, worker_.beside_files(),
                   [this, adapter, state = worker_.state(adapter), own = std::move(values)] {
                       write_export(worker_.parts.job, worker_.parts.plan.model, state, adapter,
                                    worker_.ranks.join(adapter, own));
                   });
}

void ExportService::take_written() {
    if (unlogged_ > 0 && seconds_since(last_line_) > seconds_between_lines) log_written();
    for (const AdapterId a : writing_.take_written()) {
        note_written(a);
    }
}

void ExportService::finish() {
    writing_.wait();
    take_written();
    in_stream_ = false;
}

void ExportService::write_now(AdapterId adapter) {
    StreamPart& stream = worker_.adapters[adapter].stream;
    if (stream.exported()) return;
    stream.enter(Phase::exporting);
    worker_.stream.send_parameters(adapter);
    worker_.stream.finish_orders();
}

bool ExportService::waits_for_files(AdapterId adapter) const {
    const AdapterRun& run = worker_.adapters[adapter];
    const bool has_steps_to_come =
        run.stream.last_step() && worker_.adapters.steps_to_come(adapter) > 0;
    const bool waits = !run.stream.written() && is_exportable(run.state.status) &&
                       (run.stream.exported() || worker_.sweep.is_wanted(adapter));
    return has_steps_to_come || waits || run.bests_to_write > 0;
}

}  // namespace loratrain
