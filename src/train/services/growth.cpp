#include "train/services/growth.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "train/services/services.h"

namespace loratrain {

void GrowthService::ask(const std::vector<InboxFile>& files) {
    if (asked_ || files.empty()) return;
    Asked asked;
    asked.files = files;
    asked.problems.resize(asked.files.size());
    asked.reports_left = worker_.ranks.count();
    worker_.ranks.order(CheckAdditions{asked.files});
    asked_ = std::move(asked);
}

void GrowthService::on_report(const AdditionsReport& report) {
    LORATRAIN_CHECK(awaits_reports() && report.problems.size() == asked_->files.size(),
                    "a report on additions that were not asked about");
    --asked_->reports_left;
    for (std::size_t i = 0; i < report.problems.size(); ++i) {
        std::string& problem = asked_->problems[i];
        if (problem.empty()) problem = report.problems[i];
    }
}

/// Nothing that is being written may see the job change. Files behind one that is not taken may
/// rest on it: they are looked at again.
bool GrowthService::grow() {
    const Services& services = *worker_.services;
    if (!asked_ || awaits_reports() || services.checkpoints.is_writing() ||
        services.exports.is_writing()) {
        return false;
    }
    worker_.services->step_exports.finish();
    const Asked asked = *std::exchange(asked_, {});
    std::size_t taken = 0;
    while (taken < asked.files.size() && take(asked.files[taken], asked.problems[taken])) ++taken;
    for (std::size_t i = taken + 1; i < asked.files.size(); ++i) {
        look_again(asked.files[i]);
    }
    worker_.ranks.order(DropAdditions{});
    worker_.ranks.perform_ordered();
    return taken > 0;
}

bool GrowthService::take(const InboxFile& file, std::string problem) {
    try {
        if (problem.empty()) dispatcher_.accept(file);
    } catch (const InputError& error) {
        problem = error.what();
    }
    if (!problem.empty()) {
        refuse(file, problem);
        return false;
    }
    const JobTail tail{worker_.parts.job.adapters.size(), worker_.parts.job.datasets.size()};
    worker_.ranks.order(TakeAddition{worker_.ranks.plan_with_addition()});
    worker_.ranks.perform_ordered();
    note_taken(file, tail);
    return true;
}

void GrowthService::refuse(const InboxFile& file, const std::string& why) {
    dispatcher_.refuse(file, why);
    forget(file);
}

/// The table of a joint run is the dispatcher's too, which has let it grow.
void GrowthService::note_taken(const InboxFile& file, const JobTail& tail) {
    dispatcher_.added(file);
    for (const AdapterId a : worker_.adapters.grow()) worker_.adapters[a].owned = false;
    forget(file);
    worker_.services->dispatch.note_change();
    const RunParts& parts = worker_.parts;
    if (!parts.keeps_records) return;
    for (const std::string& text :
         job_warnings(parts.job, parts.plan, parts.files, parts.base, tail)) {
        log::warn(cat(file.path, ": ", text));
    }
}

void GrowthService::look_again(const InboxFile& file) {
    dispatcher_.look_again(file);
    forget(file);
}

/// Decisions that came after the file may be obeyed now.
void GrowthService::forget(const InboxFile& file) {
    for (Decisions& decisions : dispatcher_.decisions()) {
        std::erase_if(decisions.additions,
                      [&](const InboxFile& known) { return known.path == file.path; });
    }
}

bool GrowthService::take_now(const InboxFile& file) {
    ask({file});
    worker_.stream.finish_orders();
    return grow();
}

}  // namespace loratrain
