#include "train/workers/adapter_queues.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "plan/sweep/worker_queues.h"

namespace loratrain {

AdapterQueues::AdapterQueues(const Job& job, const RunLedger& ledger, int workers)
    : job_(job),
      ledger_(ledger),
      workers_(static_cast<std::size_t>(workers)),
      owners_(job.adapters.size(), nobody),
      checkpoints_(job.adapters.size()) {}

void AdapterQueues::assign(const Plan& plan, const std::vector<DatasetInfo>& datasets,
                           const MetShapes& met, const std::vector<std::string>& checkpoints) {
    checkpoints_ = checkpoints;
    std::vector<std::int32_t> left(ledger_.adapters.size(), 0);
    for (const AdapterId a : ledger_.adapters.all()) {
        if (is_unfinished(ledger_.adapters[a].state.status)) {
            left[index(a)] = ledger_.adapters.steps_left(a);
        }
    }
    WorkerQueues queues =
        queue_for_workers(job_, plan, datasets, left, static_cast<int>(workers_.size()), met);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
        workers_[w].queue = std::move(queues.queues[w]);
    }
    packed_jobs_.assign(queues.packed_jobs.begin(), queues.packed_jobs.end());
    predicted_seconds_ = queues.seconds;
}

void AdapterQueues::add(const std::vector<AdapterId>& adapters) {
    owners_.resize(ledger_.adapters.size(), nobody);
    checkpoints_.resize(ledger_.adapters.size());
    predicted_seconds_ = 0.0;
    if (packs()) {
        packed_jobs_.push_back(adapters);
        return;
    }
    for (const AdapterId a : adapters) {
        int least = 0;
        for (int w = 1; w < static_cast<int>(workers_.size()); ++w) {
            if (work_left(w) < work_left(least)) least = w;
        }
        workers_[static_cast<std::size_t>(least)].queue.push_back(a);
    }
}

// ---- how much there is to do

bool AdapterQueues::trains(AdapterId adapter) const {
    return may_train(ledger_.adapters[adapter].state.status);
}

bool AdapterQueues::is_free(AdapterId adapter) const {
    return trains(adapter) && owners_[index(adapter)] == nobody;
}

bool AdapterQueues::has_work(int worker) const {
    const std::vector<AdapterId> all = ledger_.adapters.all();
    return std::any_of(all.begin(), all.end(),
                       [&](AdapterId a) { return owners_[index(a)] == worker && trains(a); });
}

double AdapterQueues::work_of(AdapterId adapter) const {
    return ledger_.adapters[adapter].tokens_per_step * ledger_.adapters.steps_left(adapter);
}

double AdapterQueues::work_left(int worker) const {
    double work = 0.0;
    for (const AdapterId a : ledger_.adapters.all()) {
        const bool ended = !is_unfinished(ledger_.adapters[a].state.status);
        if (owners_[index(a)] == worker && !ended) work += work_of(a);
    }
    for (const AdapterId a : workers_[static_cast<std::size_t>(worker)].queue) work += work_of(a);
    return work;
}

/// Of what the worker has been given, at its speed so far; 0 = not known.
double AdapterQueues::seconds_left(int worker) const {
    const WorkerView& view = workers_[static_cast<std::size_t>(worker)];
    const double seconds = ledger_.clock.elapsed() - view.since;
    return view.tokens > 0 ? work_left(worker) * seconds / view.tokens : 0.0;
}

// ---- who gets what

void AdapterQueues::give(Decisions& decisions) {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
        if (packs()) {
            give_job_to(w, decisions);
        } else {
            give_to(w, decisions);
        }
    }
    if (!packs()) move_work(decisions);
}

/// The worker's own queue, as long as that has anything to give. Then the queue with most work,
/// unless what it would give ends earlier there.
std::vector<AdapterId>* AdapterQueues::queue_for(int worker) {
    const auto has_free = [&](const WorkerView& view) {
        return std::any_of(view.queue.begin(), view.queue.end(),
                           [&](AdapterId a) { return is_free(a); });
    };
    WorkerView& own = workers_[static_cast<std::size_t>(worker)];
    if (has_free(own)) return &own.queue;
    int most = nobody;
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
        if (!has_free(workers_[static_cast<std::size_t>(w)])) continue;
        if (most == nobody || work_left(w) > work_left(most)) most = w;
    }
    if (most == nobody) return nullptr;
    std::vector<AdapterId>& queue = workers_[static_cast<std::size_t>(most)].queue;
    const auto last =
        std::find_if(queue.rbegin(), queue.rend(), [&](AdapterId a) { return is_free(a); });
    const bool earlier = work_left(worker) + work_of(*last) < work_left(most);
    return earlier || !has_work(worker) ? &queue : nullptr;
}

/// The first free adapter of the worker's own queue, or the last of another one.
AdapterId AdapterQueues::take_next(int worker, std::vector<AdapterId>& queue) {
    const auto free = [&](AdapterId a) { return is_free(a); };
    const bool own = &queue == &workers_[static_cast<std::size_t>(worker)].queue;
    const auto found = own ? std::find_if(queue.begin(), queue.end(), free)
                           : std::find_if(queue.rbegin(), queue.rend(), free).base() - 1;
    const AdapterId adapter = *found;
    queue.erase(found);
    if (!own) {
        log::info(cat("adapter ", job_.adapter(adapter).name, " moves to worker ", worker,
                      ", which has less to do"));
    }
    return adapter;
}

void AdapterQueues::hand_over(int worker, AdapterId adapter, Decisions& decisions) {
    WorkerView& view = workers_[static_cast<std::size_t>(worker)];
    if (!has_work(worker)) {  // its speed is that of what it does from now on
        view.since = ledger_.clock.elapsed();
        view.tokens = 0.0;
    }
    owners_[index(adapter)] = worker;
    decisions.updates.push_back({adapter, ledger_.adapters[adapter].state});
    decisions.given.push_back({worker, adapter, checkpoints_[index(adapter)]});
    --view.places;
}

/// More than the worker has room for wait there.
void AdapterQueues::give_job_to(int worker, Decisions& decisions) {
    if (workers_[static_cast<std::size_t>(worker)].places <= 0 || has_work(worker)) return;
    std::vector<std::string> names;
    while (names.empty() && !packed_jobs_.empty()) {
        for (const AdapterId a : packed_jobs_.front()) {
            if (!is_free(a)) continue;
            hand_over(worker, a, decisions);
            names.push_back(job_.adapter(a).name);
        }
        packed_jobs_.pop_front();
    }
    if (!names.empty()) log::info(cat("worker ", worker, " gets the job of ", join(names, ", ")));
}

void AdapterQueues::give_to(int worker, Decisions& decisions) {
    const WorkerView& view = workers_[static_cast<std::size_t>(worker)];
    std::vector<std::string> names;
    while (view.places > 0) {
        std::vector<AdapterId>* queue = queue_for(worker);
        if (queue == nullptr) break;
        const AdapterId adapter = take_next(worker, *queue);
        hand_over(worker, adapter, decisions);
        names.push_back(job_.adapter(adapter).name);
    }
    if (!names.empty()) log::info(cat("worker ", worker, " gets ", join(names, ", ")));
}

// ---- adapters that move

/// Most work first.
std::vector<AdapterId> AdapterQueues::movable(int worker) const {
    std::vector<AdapterId> adapters = ledger_.adapters.all();
    std::erase_if(adapters, [&](AdapterId a) { return owners_[index(a)] != worker || !trains(a); });
    std::stable_sort(adapters.begin(), adapters.end(),
                     [&](AdapterId a, AdapterId b) { return work_of(a) > work_of(b); });
    return adapters;
}

/// From the worker that is expected to end last to one that has nothing, while all queues are
/// empty: every other adapter.
void AdapterQueues::move_work(Decisions& decisions) {
    if (!leaving_.empty()) return;
    const auto workers = static_cast<int>(workers_.size());
    const auto is_idle = [&](int w) {
        return workers_[static_cast<std::size_t>(w)].places > 0 && !has_work(w);
    };
    int idle = 0;
    while (idle < workers && !is_idle(idle)) ++idle;
    if (idle == workers || queue_for(idle) != nullptr) return;
    int last = 0;
    for (int w = 1; w < workers; ++w) {
        if (seconds_left(w) > seconds_left(last)) last = w;
    }
    const std::vector<AdapterId> adapters = movable(last);
    if (adapters.size() < 2 || !move_costs_.is_worth(seconds_left(last))) return;
    for (std::size_t i = 1; i < adapters.size(); i += 2) {
        leaving_.insert(adapters[i]);
        move_costs_.ordered(adapters[i], ledger_.clock.elapsed());
        decisions.returned.push_back({last, adapters[i]});
        workers_[static_cast<std::size_t>(idle)].queue.push_back(adapters[i]);
        log::info(cat("adapter ", job_.adapter(adapters[i]).name, " moves from worker ", last,
                      " to worker ", idle, ", which has nothing to do"));
    }
}

void AdapterQueues::take_back(const ReturnedAdapter& returned) {
    owners_[index(returned.adapter)] = nobody;
    checkpoints_[index(returned.adapter)] = returned.checkpoint;
    leaving_.erase(returned.adapter);
    move_costs_.returned(returned.adapter, ledger_.clock.elapsed());
}

void AdapterQueues::note_end(AdapterId adapter) {
    leaving_.erase(adapter);
    move_costs_.ended(adapter);
}

}  // namespace loratrain
