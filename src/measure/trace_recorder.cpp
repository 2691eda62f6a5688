#include "measure/trace_recorder.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "plan/action_traits.h"
#include "plan/cost/cost_model.h"

namespace loratrain {

namespace {

/// The first ones time algorithms and fill caches.
constexpr int warm_up_observations = 4;

/// Inside of a computation only a send is waited for, before a step what replicas sum.
std::string wait_name(ActionKind kind) {
    if (kind == ActionKind::step) return "wait for sums";
    return std::string(traits_of(computes(kind) ? ActionKind::send_forward : kind).word);
}

std::vector<TraceShare> shares_in(const Job& job, const Microbatch& microbatch) {
    std::vector<TraceShare> result;
    for (const Segment& segment : microbatch.segments) {
        result.push_back({job.adapter(segment.adapter).name, segment.tokens()});
    }
    return result;
}

}  // namespace

TraceRecorder::TraceRecorder(const Job& job, const ReplicaView& view, std::size_t stage_index,
                             Backend& backend, bool keep_spans, std::int32_t lane)
    : job_(job),
      view_(view),
      span_(view.plan.model),
      rank_(view.replica.stages[stage_index].rank + lane),
      keep_spans_(keep_spans),
      host_runs_ahead_(backend.native_stream() != nullptr),
      stage_(view.replica.stages[stage_index]),
      observer_(costs_of(view), view.replica.stages[stage_index], view.replica.stages.size(),
                view.replica.recompute) {
    now_.clock = backend.make_clock();
    before_.clock = backend.make_clock();
    set_zero();
}

void TraceRecorder::set_zero() {
    for (WindowRecord* record : {&now_, &before_}) {
        record->clock->read();
        record->points = 0;
        record->entries.clear();
    }
    start_of_before_ = 0.0;
    spans_.clear();
    open_ = none;
    mark();
    if (weights_ != nullptr) weights_->start_recording();
    if (activations_ != nullptr) activations_->start_recording();
}

std::size_t TraceRecorder::mark() {
    now_.clock->mark();
    return now_.points++;
}

void TraceRecorder::start(const Window& window) {
    if (window.begins) microbatches_before_ += std::exchange(stream_microbatches_, 0);
    stream_microbatches_ += static_cast<std::int32_t>(window.microbatches.size());
    if (before_.points > 0) read(before_);
    mark();
    std::swap(now_, before_);
    mark();
}

void TraceRecorder::settle() {
    if (before_.points > 0) read(before_);
    mark();
    std::swap(now_, before_);
    mark();
    read(before_);
    read_transfers();
}

void TraceRecorder::begin(const Action& action, const UnderWay& under_way) {
    Entry entry;
    entry.kind = action.kind;
    if (computes(action.kind)) describe(action, under_way, entry);
    entry.first = mark();
    open_ = now_.entries.size();
    now_.entries.push_back(std::move(entry));
}

void TraceRecorder::end() {
    now_.entries[open_].last = mark();
    open_ = none;
}

void TraceRecorder::begin_wait() {
    Entry entry;
    entry.kind = open_ == none ? ActionKind::send_forward : now_.entries[open_].kind;
    entry.wait = true;
    entry.first = mark();
    now_.entries.push_back(std::move(entry));
}

void TraceRecorder::end_wait() {
    const std::size_t point = mark();
    now_.entries.back().last = point;
    if (open_ != none && computes(now_.entries[open_].kind)) now_.entries[open_].first = point;
}

void TraceRecorder::describe(const Action& action, const UnderWay& under_way, Entry& entry) {
    if (traits_of(action.kind).number == ActionNumber::batch) {
        const BatchPlan& batch = under_way.batch(action.batch);
        const std::string& adapter = job_.adapter(batch.adapter).name;
        if (!keeping()) return;
        entry.name = cat(traits_of(action.kind).word, " ", adapter, " ", batch.step + 1);
        entry.args = share_args({{adapter, batch.tokens}});
        return;
    }
    const Microbatch& microbatch = under_way.microbatch(action.microbatch);
    entry.load = loads_of(microbatch, span_);
    entry.evaluation = microbatch.evaluation;
    entry.new_shapes = has_new_shapes(action.kind, microbatch);
    if (!keeping()) return;
    const std::string_view word = entry.evaluation ? "evaluate" : traits_of(action.kind).word;
    entry.name = cat(word, " ", microbatches_before_ + number(action.microbatch));
    entry.args = share_args(shares_in(job_, microbatch));
}

/// Such a pass tells nothing of others.
bool TraceRecorder::has_new_shapes(ActionKind kind, const Microbatch& microbatch) {
    MetShapes& met = met_[kind == ActionKind::forward ? 0 : 1];
    return met.meet(meeting_stage(0, view_, stage_), costs_of(view_).host, microbatch) > 0.0;
}

void TraceRecorder::read(WindowRecord& record) {
    const std::vector<double> points = record.clock->read();
    for (std::size_t i = 0; i < record.entries.size(); ++i) {
        const Entry& entry = record.entries[i];
        const std::size_t over = host_runs_ahead_ ? next_start(record.entries, i) : entry.last;
        observe(entry, points[over] - points[entry.first]);
        use(entry, start_of_before_ + points[entry.first], start_of_before_ + points[entry.last]);
    }
    start_of_before_ += points.back();
    record.entries.clear();
    record.points = 0;
    read_transfers();
}

void TraceRecorder::read_transfers() {
    if (weights_ != nullptr) {
        for (const auto& transfer : weights_->take_recorded()) use(transfer, "layer");
    }
    if (activations_ == nullptr) return;
    for (const auto& transfer : activations_->take_recorded()) {
        use(transfer, transfer.to_host ? "offload" : "fetch");
    }
}

void TraceRecorder::use(const TransferRecord::Transfer& transfer, const char* word) {
    if (!keeping()) return;
    TraceSpan span;
    span.rank = rank_;
    span.thread = 1;
    span.start_s = transfer.start;
    span.end_s = transfer.end;
    span.name = cat(word, " ", stage_.first_layer + transfer.layer);
    span.category = "transfer";
    spans_.push_back(std::move(span));
}

/// The point at which the stream goes on with something else: a host that does not keep up lets it
/// stand still until then.
std::size_t TraceRecorder::next_start(const std::vector<Entry>& entries, std::size_t i) {
    const std::size_t last = entries[i].last;
    while (++i < entries.size()) {
        if (entries[i].first >= last) return entries[i].first;
    }
    return last;
}

void TraceRecorder::observe(const Entry& entry, double seconds) {
    const bool forward = entry.kind == ActionKind::forward;
    const bool trains = !entry.wait && !entry.evaluation && !entry.new_shapes;
    if (!trains || (!forward && entry.kind != ActionKind::backward)) return;
    if (++observed_ <= warm_up_observations) return;
    if (forward) {
        observer_.forward(entry.load, seconds);
    } else {
        observer_.backward(entry.load, seconds);
    }
}

void TraceRecorder::use(const Entry& entry, double start, double end) {
    if (!entry.wait && !computes(entry.kind)) return;
    const bool waits = entry.wait || entry.kind == ActionKind::reduce;
    if (!waits) computed_seconds_ += end - start;
    if (!keeping()) return;
    TraceSpan span;
    span.rank = rank_;
    span.start_s = start;
    span.end_s = end;
    span.name = entry.wait ? wait_name(entry.kind) : entry.name;
    span.category = entry.wait ? "wait" : entry.name.substr(0, entry.name.find(' '));
    span.args = entry.args;
    if (!span.name.empty()) spans_.push_back(std::move(span));
}

}  // namespace loratrain
