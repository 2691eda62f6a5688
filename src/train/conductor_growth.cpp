#include <utility>

#include "base/error.h"
#include "train/conductor.h"
#include "train/job_warnings.h"

/// Adapters that are added while a stream goes on. Rank 0 looks at their files first; the others do
/// so between two windows, keep what they have read and tell what is wrong, while all train on.
/// Between two later windows the run takes what all have found good, or none of a file. From then
/// on the adapters wait for a place (conductor_changes.cpp).

namespace loratrain {

void Conductor::look_for_additions() {
    if (additions_) additions_->answers_later = false;
    if (additions_ || !takes_orders_in_stream() || !orders_wait()) return;
    Additions found;
    for (InboxFile& file : std::exchange(orders_.additions, {})) {
        try {
            performer_.check(file);
            found.files.push_back(std::move(file));
        } catch (const InputError& error) {
            inbox_->reject(file, error.what());
        }
    }
    if (found.files.empty()) return performer_.drop_additions();
    found.problems.resize(found.files.size());
    found.verdicts_left = parts_.mpi.size() - 1;
    found.answers_later = found.verdicts_left > 0;
    post(CheckAdditions{found.files});
    additions_ = std::move(found);
}

void Conductor::take_verdict(const AdditionsVerdict& verdict) {
    LORATRAIN_CHECK(awaits_verdicts() && verdict.problems.size() == additions_->files.size(),
                    "a verdict on additions that were not asked about");
    --additions_->verdicts_left;
    for (std::size_t i = 0; i < verdict.problems.size(); ++i) {
        std::string& problem = additions_->problems[i];
        if (problem.empty()) problem = verdict.problems[i];
    }
}

/// It makes sense where all can have told by then. Also while a checkpoint is being written, which
/// can be over by then: else it never came to this where one is due at every window.
bool Conductor::waits_to_grow() const {
    return additions_ && !additions_->answers_later;
}

/// Nothing that is being written may see the job change. Files behind one that is not taken may
/// rest on it: they are looked at again.
bool Conductor::grow() {
    if (!additions_ || awaits_verdicts() || saving_ || !exporting_.empty()) return false;
    const Additions additions = *std::exchange(additions_, {});
    std::size_t taken = 0;
    while (taken < additions.files.size() &&
           take_addition(additions.files[taken], additions.problems[taken])) {
        ++taken;
    }
    post(DropAdditions{});
    performer_.drop_additions();
    return taken > 0;
}

bool Conductor::take_addition(const InboxFile& file, std::string problem) {
    try {
        if (problem.empty()) inbox_->accept(file);
    } catch (const InputError& error) {
        problem = error.what();
    }
    if (!problem.empty()) {
        inbox_->reject(file, problem);
        return false;
    }
    const JobTail tail{parts_.job.adapters.size(), parts_.job.datasets.size()};
    const TakeAddition take{performer_.plan_with_addition()};
    post(take);
    performer_.take_addition(take.plan);
    begin_added(file, tail);
    return true;
}

}  // namespace loratrain
