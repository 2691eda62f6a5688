#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "base/activity.h"
#include "base/log.h"
#include "base/some_of.h"
#include "base/text.h"
#include "io/files.h"
#include "io/run_files/generations_file.h"
#include "plan/sample_units.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"
#include "train/conductor.h"
#include "train/orders/stop_request.h"
#include "train/records/exports.h"
#include "train/records/kept_references.h"

/// What is done between two streams, with the pipeline empty: references and first evaluations of
/// those that begin, what is left to do for those that have ended, and checkpoints.

namespace loratrain {

/// What their references make of their data, where their objectives ask: as an earlier start of the
/// run found it, or from the plan alone, so that it repeats to the bit. What workers find depends
/// on their ranks: they keep nothing.
void Conductor::refer_newcomers() {
    for (const AdapterId a : adapters_.running()) {
        const AdapterJob& adapter = parts_.job.adapter(a);
        if (!adapter.loss.has_reference()) continue;
        const ReferenceId id = reference_of(adapter);
        if (!referred_.insert(id).second) continue;
        const KeptReferences kept(parts_.job, parts_.identity, id);
        const bool keeps = parts_.desk == nullptr;
        const std::string what =
            cat("dataset ", parts_.job.dataset(id.dataset).name, ": log-probabilities under ",
                id.ref_adapter.empty() ? "the base model" : id.ref_adapter);
        const DatasetInfo& info = parts_.datasets[index(id.dataset)];
        if (const auto known = keeps ? kept.read(info.train.size() + info.eval.size())
                                     : std::optional<std::vector<double>>{}) {
            post(KnownReferences{a, *known});
            performer_.set_references(a, *known);
            log::info(what + " read");
            continue;
        }
        const auto start = std::chrono::steady_clock::now();
        refer(a);
        if (keeps) kept.write(performer_.references().of(id));
        log::info(cat(what, " found in ", format_fixed(seconds_since(start), 1), " s"));
    }
}

void Conductor::refer(AdapterId adapter) {
    activity::begin(activity::Task::plan);
    const Directive directive = ReferWindow{plan_joint_eval_window(
        parts_.job, parts_.plan, all_samples_as_eval(parts_.datasets), {adapter})};
    post(directive);
    performer_.refer(std::get<ReferWindow>(directive).window, [this] { journal_.beat(); });
}

/// Before their first step, once for all that start alike.
void Conductor::evaluate_newcomers() {
    std::map<StartKey, std::size_t> places;  // in the next two
    std::vector<AdapterId> first;
    std::vector<std::vector<AdapterId>> alike;  // behind each of `first`
    std::vector<AdapterId> known;
    for (const AdapterId a : adapters_.running()) {
        if (!awaits_first_evaluation(a)) continue;
        const std::optional<StartKey> key = start_key(parts_.job.adapter(a));
        if (knows_start(a)) {
            known.push_back(a);
        } else if (key && !places.emplace(*key, first.size()).second) {
            alike[places.at(*key)].push_back(a);
        } else {
            first.push_back(a);
            alike.emplace_back();
        }
    }
    for (std::size_t i = 0; i < first.size(); ++i) tell_of_start(first[i], alike[i]);
    evaluate(first);
    for (const std::vector<AdapterId>& group : alike) {
        known.insert(known.end(), group.begin(), group.end());
    }
    for (const AdapterId a : known) take_start(a);
    journal_.flush();
}

bool Conductor::awaits_first_evaluation(AdapterId adapter) const {
    return is_untouched(adapters_[adapter].state) &&
           has_eval_samples(parts_.job, parts_.datasets, adapter);
}

/// Before it is evaluated: that takes a while.
void Conductor::tell_of_start(AdapterId first, const std::vector<AdapterId>& alike) const {
    constexpr std::size_t most_named = 4;
    const auto name_of = [this](AdapterId a) { return parts_.job.adapter(a).name; };
    std::vector<std::string> others;
    for (const AdapterId a : alike) others.push_back(name_of(a));
    const DatasetInfo& info = parts_.datasets[index(parts_.job.adapter(first).dataset)];
    const std::int64_t samples = units_of(std::ssize(info.eval), info.group_samples);
    const std::string once = others.empty()
                                 ? ""
                                 : cat(", once also for ", some_of(others, most_named), ", which ",
                                       others.size() == 1 ? "starts" : "start", " alike");
    log::info(cat("evaluating ", name_of(first), " before its first step", once, " (", samples, " ",
                  unit_word(info.group_samples), ")"));
}

/// Of a sweep, an adapter that starts as this one does, of which an earlier start of the run or
/// another worker has told; what is told beside loss and exact match is not known then.
const AdapterState* Conductor::recalled_start(AdapterId adapter) const {
    const std::optional<StartKey> key = start_key(parts_.job.adapter(adapter));
    if (!parts_.job.sweep || !key) return nullptr;
    for (const AdapterId a : adapters_.all()) {
        const AdapterState& state = adapters_[a].state;
        if (state.first_eval_loss >= 0 && start_key(parts_.job.adapter(a)) == key) return &state;
    }
    return nullptr;
}

bool Conductor::knows_start(AdapterId adapter) const {
    const std::optional<StartKey> key = start_key(parts_.job.adapter(adapter));
    return key && (starts_.contains(*key) || recalled_start(adapter) != nullptr);
}

/// The evaluation before its first step is that of an adapter that starts alike; knows_start().
void Conductor::take_start(AdapterId adapter) {
    const auto found = starts_.find(start_key(parts_.job.adapter(adapter)).value());
    if (found != starts_.end()) {
        EvalResult result = found->second;
        result.adapter = adapter;
        note_evaluation_of(result, true);
        return;
    }
    const AdapterState& other = *recalled_start(adapter);
    take_evaluation(other.first_eval_loss, other.first_exact_match, adapters_[adapter].state);
    journal_.start_known(adapter);
}

/// Whether those that train are evaluated after this round.
bool Conductor::regular_evaluation() const {
    return all_are_evaluated(parts_.job, adapters_.round());
}

/// Evaluates and exports those that trained, where that is not done in the stream.
void Conductor::end_adapters(const std::vector<AdapterId>& trained) {
    std::vector<AdapterId> evaluated;
    for (const AdapterId a : trained) {
        const bool stopped = adapters_[a].state.status == AdapterStatus::stopped;
        if (stopped && !is_evaluated(a)) evaluated.push_back(a);
    }
    evaluate(evaluated);
    judge_evaluations(evaluated);
    activity::begin(activity::Task::end_window);
    journal_.flush();
    for (const AdapterId a : trained) {
        const bool exported = exported_.contains(a);
        const bool complete = is_complete(adapters_[a].state.status);
        if (complete && !exported && sweep_.is_wanted(a)) export_adapter(a);
    }
    if (parts_.job.eval.generate.wanted()) write_texts(trained);
    parts_.stop.window_took(stream_.seconds_since_last_window());
}

/// On all eval samples, or on the first `most_samples` of each dataset.
void Conductor::evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples) {
    activity::begin(activity::Task::plan);
    const Directive directive = EvaluateWindow{
        most_samples > 0
            ? plan_joint_eval_window(parts_.job, parts_.plan,
                                     first_eval_samples(parts_.datasets, most_samples), adapters)
            : plan_joint_eval_window(parts_.job, parts_.plan, parts_.datasets, adapters)};
    const JointWindow& joint = std::get<EvaluateWindow>(directive).window;
    const Window& window = joint.common();
    if (window.batches.empty()) return;
    post(directive);
    for (EvalResult result : performer_.evaluate(joint, [this] { journal_.beat(); })) {
        result.step = adapters_[result.adapter].state.steps;
        note_evaluation_of(result);
    }
}

/// `is_shared`: it was made for another adapter, which the log has it of.
void Conductor::note_evaluation_of(const EvalResult& result, bool is_shared) {
    const bool of_pairs = parts_.job.adapter(result.adapter).loss.is_of_pairs();
    const double right = of_pairs ? means_of(result.rewards).accuracies : result.exact_match();
    take_evaluation(result.loss(), right, adapters_[result.adapter].state);
    journal_.evaluated(result, is_shared);
    if (is_shared || result.step > 0) return;
    if (const auto key = start_key(parts_.job.adapter(result.adapter))) {
        starts_.emplace(*key, result);
    }
}

std::vector<NamedTensor> Conductor::gather(AdapterId adapter) {
    post(GatherAdapter{adapter});
    return performer_.gather(adapter);
}

void Conductor::export_adapter(AdapterId adapter) {
    write_export(parts_.job, parts_.plan.model, adapters_[adapter].state, adapter, gather(adapter));
}

/// Of those that have ended, while their memory is not given up.
void Conductor::write_texts(const std::vector<AdapterId>& trained) {
    for (const AdapterId a : trained) {
        const bool ended = is_complete(adapters_[a].state.status) && sweep_.is_wanted(a);
        if (!ended || !has_texts(a)) continue;
        const auto start = std::chrono::steady_clock::now();
        post(GenerateTexts{a});
        const std::vector<GeneratedText> texts =
            performer_.generate(a, [this] { journal_.beat(); });
        const std::string& name = parts_.job.adapter(a).name;
        write_text_atomic(cat(parts_.job.run.dir, "/adapters/", name, "/", generations_file_name),
                          to_text(texts));
        text_seconds_ = seconds_since(start);
        log::info(texts_notice(name, texts, *text_seconds_));
    }
}

bool Conductor::checkpoint_due_by_time() const {
    const double minutes = parts_.job.checkpoint.every_minutes;
    return minutes > 0 && seconds_since(last_checkpoint_) > 60.0 * minutes;
}

/// Time limits only count once this start has got further.
std::string Conductor::reason_to_stop() {
    if (!stop_ordered_.empty()) return stop_ordered_;
    signal_ = std::max({signal_, stop_signal(), channel_.reported()});
    return parts_.stop.reason(signal_, adapters_.round(), stream_.batches_done() > 0);
}

/// Asked once for the adapters that are left. Where it is so, the next start asks again and comes
/// to the same, whether this one gets to it or is killed before.
bool Conductor::redeploys() {
    const RunState now = state();
    const std::vector<AdapterId> left = unfinished_in(now);
    if (!parts_.redeploys || left.empty() || left == now.deployment.judged_for) return false;
    const bool foreseen = foreseen_ && foreseen_->left == left && foreseen_->round == now.round;
    if (foreseen ? foreseen_->pays.get() : parts_.redeploys(now)) return true;
    adapters_.deployment().judged_for = left;
    return false;
}

void Conductor::save() {
    const auto start = std::chrono::steady_clock::now();
    post(SaveCheckpoint{});
    performer_.save(state());
    last_checkpoint_ = std::chrono::steady_clock::now();
    parts_.stop.checkpoint_took(seconds_since(start));
    log::info(cat("checkpoint at round ", adapters_.round()));
    journal_.checkpointed();
    release(adapters_held());
    forget_obeyed(stopping_);
}

/// The memory of those that have ended, now that the checkpoint has them.
void Conductor::release(const std::vector<AdapterId>& saved) {
    for (const AdapterId a : saved) {
        if (is_unfinished(adapters_[a].state.status) || !is_held(a)) continue;
        post(ReleaseAdapter{a});
        performer_.release(a);
    }
}

}  // namespace loratrain
