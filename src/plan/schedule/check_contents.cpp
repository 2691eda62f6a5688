#include "plan/schedule/check_contents.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "plan/action_traits.h"
#include "plan/memory/memory_model.h"
#include "plan/sample_counts.h"

namespace loratrain {

namespace {

bool within(std::int64_t value, std::size_t size) {
    return value >= 0 && value < static_cast<std::int64_t>(size);
}

/// A number of the stream up to the end of a window that begins at `first`.
bool known(std::int64_t value, std::int32_t first, std::size_t size) {
    return value >= 0 && value < first + static_cast<std::int64_t>(size);
}

std::string batch_name(AdapterId adapter, std::int32_t step, bool evaluation) {
    return cat(evaluation ? "evaluation (" : "batch (", number(adapter), ", ", step, ")");
}
std::string batch_name(const BatchPlan& batch) {
    return batch_name(batch.adapter, batch.step, batch.evaluation);
}

bool number_exists(const Window& window, const Action& action) {
    switch (traits_of(action.kind).number) {
        case ActionNumber::microbatch:
            return known(number(action.microbatch), window.first_microbatch,
                         window.microbatches.size());
        case ActionNumber::batch:
            return known(action.batch, window.first_batch, window.batches.size());
        case ActionNumber::none:
            break;
    }
    return true;
}

bool action_references_exist(const Window& window, const Action& action) {
    return number_exists(window, action) &&
           std::all_of(action.carried.begin(), action.carried.end(), [&](std::int32_t b) {
               return known(b, window.first_batch, window.batches.size());
           });
}

/// What the microbatches really hold of a batch.
struct Held {
    std::int32_t samples = 0;
    std::int64_t tokens = 0;
    std::int64_t targets = 0;
    std::int64_t chosen_targets = 0;
    std::int32_t first = -1;
    std::int32_t last = -1;
};

class ContentCheck {
  public:
    ContentCheck(const Job& job, std::span<const ReplicaView> views, const JointWindow& joint,
                 std::span<const SegmentBatches> batch_of, Findings& findings)
        : job_(job),
          plan_(views.front().plan),
          views_(views),
          joint_(joint),
          batch_of_(batch_of),
          window_(joint.common()),
          findings_(findings),
          held_(views.size(), std::vector<Held>(window_.batches.size())) {}

    void run() {
        check_steps();
        for (std::size_t r = 0; r < views_.size(); ++r) {
            check_order(r);
            const std::vector<Microbatch>& microbatches = joint_.replicas[r].microbatches;
            for (std::size_t m = 0; m < microbatches.size(); ++m) check_microbatch(r, m);
        }
        for (std::size_t b = 0; b < window_.batches.size(); ++b) check_batch(b);
        check_full_epochs();
    }

  private:
    /// All of an adapter's step lies behind all of the one before.
    void check_order(std::size_t r) {
        std::vector<const BatchPlan*> newest(plan_.adapters.size(), nullptr);
        for (const BatchPlan& batch : joint_.replicas[r].batches) {
            if (!batch.is_here()) continue;
            const BatchPlan*& before = newest[index(batch.adapter)];
            if (before != nullptr && batch.first_microbatch <= before->last_microbatch) {
                findings_.add(of_replica(r), batch_name(batch), " does not come behind all of ",
                              batch_name(*before));
            }
            before = &batch;
        }
    }

    /// What a finding begins with that is of one of several replicas.
    std::string of_replica(std::size_t r) const {
        return views_.size() == 1 ? "" : cat("replica ", r, ": ");
    }

    void check_steps() {
        std::vector<std::int32_t> seen(plan_.adapters.size(), 0);
        std::vector<const BatchPlan*> newest(plan_.adapters.size(), nullptr);
        for (const BatchPlan& batch : window_.batches) {
            const std::size_t a = index(batch.adapter);
            if (!batch.evaluation) ++seen[a];
            const bool in_window = batch.round >= window_.first_round &&
                                   batch.round < window_.first_round + window_.rounds;
            if (!in_window) {
                findings_.add(batch_name(batch), " is of round ", batch.round,
                              ", which is not in the window");
            }
            if (newest[a] != nullptr && batch.step != steps_behind(*newest[a])) {
                findings_.add(batch_name(batch), " does not follow ", batch_name(*newest[a]));
            }
            newest[a] = &batch;
            check_numbers(batch);
        }
        for (std::size_t a = 0; a < seen.size(); ++a) {
            const bool ended = newest[a] != nullptr && steps_behind(*newest[a]) == total_steps(a);
            if (seen[a] > window_.rounds || (seen[a] > 0 && seen[a] < window_.rounds && !ended)) {
                findings_.add("adapter ", a, " takes ", seen[a], " steps in ", window_.rounds,
                              " rounds");
            }
        }
    }

    /// Nobody knows how many samples come, and batches of its files may be smaller.
    bool grows(AdapterId adapter) const {
        return job_.dataset(job_.adapter(adapter).dataset).grows();
    }

    /// Optimizer steps that its adapter has taken after it.
    static std::int32_t steps_behind(const BatchPlan& batch) {
        return batch.evaluation ? batch.step : batch.step + 1;
    }
    std::int32_t total_steps(std::size_t adapter) const {
        return plan_.adapters[adapter].total_steps;
    }

    void check_numbers(const BatchPlan& batch) {
        const AdapterPlan& adapter = plan_.adapters[index(batch.adapter)];
        if (batch.evaluation) {
            if (batch.step < 0 || batch.step > adapter.total_steps || batch.last_of_adapter) {
                findings_.add(batch_name(batch), " is impossible");
            }
            return;
        }
        if (batch.step < 0 || batch.step >= adapter.total_steps) {
            findings_.add(batch_name(batch), " is outside its ", adapter.total_steps, " steps");
        }
        if (batch.epoch != batch.step / adapter.steps_per_epoch) {
            findings_.add(batch_name(batch), " says epoch ", batch.epoch);
        }
        if (batch.last_of_adapter != (batch.step + 1 == adapter.total_steps)) {
            findings_.add(batch_name(batch), " has a wrong last_of_adapter");
        }
    }

    void check_microbatch(std::size_t r, std::size_t m) {
        const Microbatch& microbatch = joint_.replicas[r].microbatches[m];
        const std::int64_t most = views_[r].replica.microbatch_tokens;
        const std::string name = cat(of_replica(r), "microbatch ", m);
        if (microbatch.segments.empty()) findings_.add(name, " is empty");
        if (microbatch.tokens() > most) {
            findings_.add(name, " has ", microbatch.tokens(), " tokens, more than ", most);
        }
        check_columns(r, name, microbatch);
        std::set<AdapterId> adapters;
        for (std::size_t i = 0; i < microbatch.segments.size(); ++i) {
            const Segment& segment = microbatch.segments[i];
            if (!adapters.insert(segment.adapter).second) {
                findings_.add(name, " has two segments of adapter ", number(segment.adapter));
            }
            const std::int32_t batch = batch_of_[r][m][i];
            if (batch < 0) continue;
            collect(segment, window_.batches[static_cast<std::size_t>(batch)], name,
                    held_[r][static_cast<std::size_t>(batch)], static_cast<std::int32_t>(m));
        }
    }

    void check_columns(std::size_t r, const std::string& name, const Microbatch& microbatch) {
        const LoraColumns& columns = microbatch.columns;
        const ReplicaPlan& replica = views_[r].replica;
        const std::int32_t most = columns.augmented ? replica.pad_columns : replica.saved_columns;
        if (columns.width != padded_columns(columns.width) || columns.width > most) {
            findings_.add(name, " has ", columns.width, " LoRA columns of ", most);
        }
        if (columns.lasting != joint_.replicas[r].microbatches.front().columns.lasting) {
            findings_.add(name, " has other lasting columns than those before");
        }
        std::vector<AdapterId> adapters;
        for (const Segment& segment : microbatch.segments) adapters.push_back(segment.adapter);
        if (!columns_fit(columns, adapters, columns.first)) {
            findings_.add(name, " has LoRA columns that overlap or are outside");
        }
        if (!columns.lasting.empty() && !lasting_columns_fit(columns, adapters)) {
            findings_.add(name, " has wrong lasting columns");
        }
    }

    /// Columns of these adapters, side by side or, by segment, each for itself.
    bool columns_fit(const LoraColumns& columns, const std::vector<AdapterId>& adapters,
                     const std::vector<std::int32_t>& first) const {
        if (first.size() != adapters.size()) return false;
        std::vector<bool> taken(static_cast<std::size_t>(std::max(0, columns.width)), false);
        for (std::size_t i = 0; i < first.size(); ++i) {
            const std::int32_t end = first[i] + job_.adapter(adapters[i]).largest_rank();
            if (first[i] < 0 || end > columns.width) return false;
            if (!columns.augmented && first[i] != 0) return false;
            for (std::int32_t c = first[i]; c < end && columns.augmented; ++c) {
                if (taken[static_cast<std::size_t>(c)]) return false;
                taken[static_cast<std::size_t>(c)] = true;
            }
        }
        return true;
    }

    bool lasting_columns_fit(const LoraColumns& columns,
                             const std::vector<AdapterId>& adapters) const {
        std::vector<AdapterId> all;
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            all.push_back(static_cast<AdapterId>(a));
        }
        if (!columns.augmented || !columns_fit(columns, all, columns.lasting)) return false;
        for (std::size_t i = 0; i < columns.first.size() && i < adapters.size(); ++i) {
            if (columns.first[i] != columns.lasting[index(adapters[i])]) return false;
        }
        return true;
    }

    void collect(const Segment& segment, const BatchPlan& batch, const std::string& name,
                 Held& held, std::int32_t m) {
        if (held.first < 0) held.first = m;
        held.last = m;
        held.tokens += segment.tokens();
        for (const SampleRef& sample : segment.samples) {
            held.targets += sample.targets;
            const bool chosen = is_chosen(job_.adapter(batch.adapter).loss, sample.index);
            if (chosen) held.chosen_targets += sample.targets;
        }
        held.samples += static_cast<std::int32_t>(segment.samples.size());
        if (segment.samples.empty()) {
            findings_.add(name, " has an empty segment of ", batch_name(batch));
        }
        check_groups(segment, batch, name);
        const bool any = batch.evaluation || grows(batch.adapter);
        const std::int64_t most = any ? INT32_MAX : adapter_samples(batch);
        for (const SampleRef& sample : segment.samples) {
            if (sample.index < 0 || sample.index >= most || sample.tokens < 1) {
                findings_.add(batch_name(batch), " has an impossible sample ", sample.index);
            }
            const std::int64_t most_seen = most_times(batch, sample.index);
            if (++seen_[pass_of(batch)][sample.index] > most_seen) {
                findings_.add(batch_name(batch), " has sample ", sample.index,
                              most_seen == 1 ? " a second time" : " too often", " in epoch ",
                              batch.epoch);
            }
        }
    }

    /// The samples are groups of neighbours in the dataset, and all of a batch that is compared.
    void check_groups(const Segment& segment, const BatchPlan& batch, const std::string& name) {
        const std::int32_t size = plan_.adapters[index(batch.adapter)].group_samples;
        const std::vector<SampleRef>& samples = segment.samples;
        bool whole = std::ssize(samples) % size == 0;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const auto place = static_cast<std::int32_t>(i) % size;
            const SampleRef& first = samples[i - static_cast<std::size_t>(place)];
            whole = whole && first.index % size == 0 && samples[i].index == first.index + place;
        }
        if (!whole) findings_.add(name, " cuts a group of ", batch_name(batch));
        const bool at_once = job_.adapter(batch.adapter).loss.is_contrastive();
        if (at_once && !batch.evaluation && std::ssize(samples) != batch.samples) {
            findings_.add(name, " has ", samples.size(), " of the ", batch.samples, " samples of ",
                          batch_name(batch), ", which are compared with each other");
        }
    }

    /// A pass over a dataset: an epoch of an adapter, or one of its evaluations.
    using Pass = std::tuple<AdapterId, bool, std::int32_t>;
    static Pass pass_of(const BatchPlan& batch) {
        return {batch.adapter, batch.evaluation, batch.evaluation ? batch.step : batch.epoch};
    }

    /// In one pass: the last of a permutation of a file may be the first of the next one too.
    std::int64_t most_times(const BatchPlan& batch, std::int64_t sample) const {
        const std::vector<FileShare>& files = plan_.adapters[index(batch.adapter)].files;
        if (batch.evaluation || files.empty() || sample >= adapter_samples(batch)) return 1;
        std::vector<std::int64_t> counts;
        for (const FileShare& file : files) counts.push_back(file.samples);
        const FileShare& file = files[file_of(counts, sample)];
        return file.taken / file.samples + (file.taken % file.samples == 0 ? 0 : 2);
    }

    std::int64_t adapter_samples(const BatchPlan& batch) const {
        return plan_.adapters[index(batch.adapter)].samples;
    }

    void check_batch(std::size_t b) {
        const BatchPlan& batch = window_.batches[b];
        Held held;
        for (std::size_t r = 0; r < views_.size(); ++r) {
            held.samples += held_[r][b].samples;
            held.tokens += held_[r][b].tokens;
            held.targets += held_[r][b].targets;
            held.chosen_targets += held_[r][b].chosen_targets;
            check_place(r, b);
        }
        if (held.samples != batch.samples) {
            findings_.add(batch_name(batch), " has ", batch.samples, " samples, its microbatches ",
                          held.samples);
        }
        if (held.tokens != batch.tokens + batch.padding) {
            findings_.add(batch_name(batch), " has ", batch.tokens, " tokens and ", batch.padding,
                          " of padding, its microbatches ", held.tokens);
        }
        if (held.targets != batch.targets) {
            findings_.add(batch_name(batch), " has ", batch.targets, " targets, its microbatches ",
                          held.targets);
        }
        if (held.chosen_targets != batch.chosen_targets) {
            findings_.add(batch_name(batch), " has ", batch.chosen_targets,
                          " chosen targets, its microbatches ", held.chosen_targets);
        }
        const LossJob& loss = job_.adapter(batch.adapter).loss;
        const double expected = loss_denominator(batch.evaluation ? loss.evaluated() : loss, batch);
        if (batch.denominator != expected) {
            findings_.add(batch_name(batch), " is divided by ", batch.denominator);
        }
        const auto files = samples_of_files(plan_.adapters[index(batch.adapter)], batch.evaluation);
        if (batch.file_denominators.size() != files.size()) {
            findings_.add(batch_name(batch), " has denominators of ",
                          batch.file_denominators.size(), " files");
        }
        const bool weighs = std::isfinite(batch.target_weight) && batch.target_weight >= 0.0;
        if (!weighs || (batch.target_weight > 0.0) != (batch.targets > 0)) {
            findings_.add(batch_name(batch), " has ", batch.targets, " targets that weigh ",
                          batch.target_weight);
        }
        if (batch.samples < 1 || batch.padding < 0 || batch.targets < 0 ||
            batch.targets > batch.tokens) {
            findings_.add(batch_name(batch), " has impossible counts");
        }
    }

    void check_place(std::size_t r, std::size_t b) {
        const Window& window = joint_.replicas[r];
        const BatchPlan& batch = window.batches[b];
        const Held& held = held_[r][b];
        const bool empty = views_.size() > 1 && !batch.is_here();
        const std::int32_t before = empty ? 0 : window.first_microbatch;
        const std::int32_t first = number(batch.first_microbatch) - before;
        const std::int32_t last = number(batch.last_microbatch) - before;
        if (held.first != first || held.last != last) {
            findings_.add(of_replica(r), batch_name(batch), " is in microbatches ", held.first,
                          " to ", held.last, ", not ", first, " to ", last);
        }
    }

    /// An epoch whose batches are all in the window holds every sample.
    void check_full_epochs() {
        std::map<Pass, std::int32_t> batches;
        for (const BatchPlan& batch : window_.batches) {
            if (!batch.evaluation) ++batches[pass_of(batch)];
        }
        for (const auto& [pass, count] : batches) {
            const auto [id, evaluation, epoch] = pass;
            const AdapterPlan& adapter = plan_.adapters[index(id)];
            std::int64_t held = 0;
            for (const auto& [sample, times] : seen_[pass]) held += times;
            if (grows(id)) continue;
            if (count == adapter.steps_per_epoch && held != adapter.epoch_samples()) {
                findings_.add("epoch ", epoch, " of adapter ", number(id), " holds ", held, " of ",
                              adapter.epoch_samples(), " samples");
            }
        }
    }

    const Job& job_;
    const Plan& plan_;
    std::span<const ReplicaView> views_;
    const JointWindow& joint_;
    std::span<const SegmentBatches> batch_of_;
    const Window& window_;  ///< what does not depend on the replica
    Findings& findings_;
    std::vector<std::vector<Held>> held_;                        ///< per replica and batch
    std::map<Pass, std::map<std::int32_t, std::int64_t>> seen_;  ///< how often
};

}  // namespace

bool check_references(const ReplicaView& view, const Window& window, Findings& findings) {
    const std::size_t stages = view.replica.stages.size();
    if (window.actions.size() != stages || window.peak_in_flight.size() != stages) {
        findings.add("the window has action lists for ", window.actions.size(), " and peaks for ",
                     window.peak_in_flight.size(), " stages, the plan has ", stages);
        return false;
    }
    bool valid = true;
    const auto is_microbatch = [&](MicrobatchId id) {
        return within(number(id) - window.first_microbatch, window.microbatches.size());
    };
    for (const BatchPlan& batch : window.batches) {
        const bool elsewhere =
            view.plan.replicas.size() > 1 && !batch.is_here() && number(batch.last_microbatch) < 0;
        valid = valid && within(number(batch.adapter), view.plan.adapters.size()) &&
                (elsewhere ||
                 (is_microbatch(batch.first_microbatch) && is_microbatch(batch.last_microbatch)));
    }
    for (const Microbatch& microbatch : window.microbatches) {
        for (const Segment& segment : microbatch.segments) {
            valid = valid && within(number(segment.adapter), view.plan.adapters.size());
        }
    }
    if (!valid) findings.add("a batch or segment names an adapter or microbatch that is not there");
    for (std::size_t s = 0; s < stages; ++s) {
        for (const Action& action : window.actions[s]) {
            if (action_references_exist(window, action)) continue;
            findings.add("stage ", s, ": ", action_text(action), " names what is not there");
            valid = false;
        }
    }
    return valid;
}

SegmentBatches find_segment_batches(const Window& window, Findings& findings) {
    std::map<std::tuple<AdapterId, std::int32_t, bool>, std::int32_t> by_key;
    for (std::size_t b = 0; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        const auto key = std::tuple(batch.adapter, batch.step, batch.evaluation);
        if (!by_key.try_emplace(key, static_cast<std::int32_t>(b)).second) {
            findings.add(batch_name(batch), " is there twice");
        }
    }
    SegmentBatches batch_of;
    for (const Microbatch& microbatch : window.microbatches) {
        std::vector<std::int32_t>& batches = batch_of.emplace_back();
        for (const Segment& segment : microbatch.segments) {
            const auto found = by_key.find({segment.adapter, segment.step, microbatch.evaluation});
            batches.push_back(found == by_key.end() ? -1 : found->second);
            if (found != by_key.end()) continue;
            findings.add(batch_name(segment.adapter, segment.step, microbatch.evaluation),
                         " has samples but no entry");
        }
    }
    return batch_of;
}

void check_contents(const Job& job, std::span<const ReplicaView> views, const JointWindow& joint,
                    std::span<const SegmentBatches> batch_of, Findings& findings) {
    ContentCheck(job, views, joint, batch_of, findings).run();
}

}  // namespace loratrain
