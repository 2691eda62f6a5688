#include "measure/trace_recorder.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "plan/action_traits.h"

namespace loratrain {

namespace {

/// The first ones time algorithms and fill caches.
constexpr int warm_up_observations = 4;

/// Inside of a computation only a send is waited for, before a step what replicas sum.
std::string wait_name(ActionKind kind) {
    if (kind == ActionKind::step) return "wait for sums";
    return std::string(traits_of(computes(kind) ? ActionKind::send_forward : kind).word);
}

CostLine attention_of(const CostLine& layer) {
    return {0.0, 0.0, layer.per_square, 0.0};
}

CostLine rest_of(const CostLine& layer) {
    return {layer.fixed, layer.per_token, 0.0, layer.per_segment};
}

CostLine sum_of_lines(const CostLine& one, double times, const CostLine& other) {
    return {one.fixed + times * other.fixed, one.per_token + times * other.per_token,
            one.per_square + times * other.per_square, one.per_segment + times * other.per_segment};
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
    const CostModel& costs = costs_of(view);
    const CostLine& forward = costs.layer_forward;
    const CostLine& backward = costs.layer_backward;
    const double again =
        view.replica.recompute == Recompute::layer ? recomputed_share(stage_) : 0.0;
    forward_lines_ = {attention_of(forward), rest_of(forward)};
    backward_lines_ = {sum_of_lines(attention_of(backward), again, attention_of(forward)),
                       sum_of_lines(rest_of(backward), again, rest_of(forward))};
    now_.clock = backend.make_clock();
    before_.clock = backend.make_clock();
    set_zero();
}

TraceRecorder::~TraceRecorder() {
    if (follows_) activity::listen(nullptr);
}

void TraceRecorder::follow_activity() {
    follows_ = true;
    activity::listen(this);
}

void TraceRecorder::changed(const activity::State& state) {
    if (labels_.follow(state)) mark();
}

void TraceRecorder::set_zero() {
    for (WindowRecord* record : {&now_, &before_}) {
        record->clock->read();
        record->phases.clear();
        record->entries.clear();
    }
    account_ = {};
    start_of_before_ = 0.0;
    kept_.clear();
    transfers_.clear();
    open_ = none;
    mark();
    if (weights_ != nullptr) weights_->start_recording();
    if (activations_ != nullptr) activations_->start_recording();
}

std::size_t TraceRecorder::mark() {
    now_.clock->mark();
    now_.phases.push_back(labels_.now());
    return now_.phases.size() - 1;
}

void TraceRecorder::start(const Window& window) {
    if (window.begins) microbatches_before_ += std::exchange(stream_microbatches_, 0);
    stream_microbatches_ += static_cast<std::int32_t>(window.microbatches.size());
    if (!before_.phases.empty()) read(before_);
    mark();
    std::swap(now_, before_);
    mark();
}

void TraceRecorder::settle() {
    if (!before_.phases.empty()) read(before_);
    mark();
    std::swap(now_, before_);
    mark();
    read(before_);
    read_transfers();
}

void TraceRecorder::begin(const Action& action, const UnderWay& under_way) {
    Entry entry;
    entry.doing.kind = action.kind;
    if (computes(action.kind)) describe(action, under_way, entry);
    labels_.begin_action(action.kind, entry.doing.evaluation);
    entry.first = mark();
    open_ = now_.entries.size();
    now_.entries.push_back(std::move(entry));
}

void TraceRecorder::end() {
    labels_.end_action();
    now_.entries[open_].last = mark();
    open_ = none;
}

void TraceRecorder::begin_wait() {
    Entry entry;
    entry.doing.kind = open_ == none ? ActionKind::send_forward : now_.entries[open_].doing.kind;
    entry.doing.wait = true;
    labels_.begin_wait();
    entry.first = mark();
    now_.entries.push_back(std::move(entry));
}

void TraceRecorder::end_wait() {
    labels_.end_wait();
    const std::size_t point = mark();
    now_.entries.back().last = point;
    if (open_ != none && computes(now_.entries[open_].doing.kind))
        now_.entries[open_].first = point;
}

void TraceRecorder::describe(const Action& action, const UnderWay& under_way, Entry& entry) {
    Doing& doing = entry.doing;
    if (traits_of(action.kind).number == ActionNumber::batch) {
        const BatchPlan& batch = under_way.batch(action.batch);
        doing.number = batch.step + 1;
        if (keeping()) doing.shares.push_back({batch.adapter, batch.tokens});
        return;
    }
    const Microbatch& microbatch = under_way.microbatch(action.microbatch);
    entry.load = loads_of(microbatch, span_);
    entry.new_shapes = has_new_shapes(action.kind, microbatch);
    doing.evaluation = microbatch.evaluation;
    doing.number = microbatches_before_ + number(action.microbatch);
    if (!doing.evaluation) add_work(entry.load, action.kind);
    if (!keeping()) return;
    for (const Segment& segment : microbatch.segments) {
        doing.shares.push_back({segment.adapter, segment.tokens()});
    }
}

/// Sums alone, on the host: it may be ahead of what the account has read.
void TraceRecorder::add_work(const AdapterLoads& load, ActionKind kind) {
    const bool forward = kind == ActionKind::forward;
    const KindLines& lines = forward ? forward_lines_ : backward_lines_;
    KindSeconds kinds{layers_seconds(lines.attention, stage_, load),
                      layers_seconds(lines.linears, stage_, load), 0.0};
    if (!forward) {
        account_.backward += kinds;
        return;
    }
    const auto targets = static_cast<double>(load.total.targets);
    if (stage_.has_head) kinds.head = costs_of(view_).head.seconds(targets, 0.0);
    account_.forward += kinds;
    account_.tokens += static_cast<double>(load.total.tokens);
    account_.squares += load.total.squares;
}

/// Such a pass tells nothing of others.
bool TraceRecorder::has_new_shapes(ActionKind kind, const Microbatch& microbatch) {
    const HostCosts& host = costs_of(view_).host;
    if (!meets_new_shapes(host)) return false;
    MetShapes& met = met_[kind == ActionKind::forward ? 0 : 1];
    return met.meet(meeting_stage(0, view_, stage_), host, microbatch) > 0.0;
}

void TraceRecorder::read(WindowRecord& record) {
    const std::vector<double> points = record.clock->read();
    for (std::size_t i = 0; i < record.entries.size(); ++i) {
        Entry& entry = record.entries[i];
        const std::size_t over = host_runs_ahead_ ? next_start(record.entries, i) : entry.last;
        observe(entry, points[over] - points[entry.first]);
        use(entry, start_of_before_ + points[entry.first], start_of_before_ + points[entry.last]);
    }
    start_of_before_ += points.back();
    account_.add(points, record.phases);
    record.entries.clear();
    record.phases.clear();
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
    transfers_.push_back(std::move(span));
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
    const Doing& doing = entry.doing;
    const bool forward = doing.kind == ActionKind::forward;
    const bool trains = !doing.wait && !doing.evaluation && !entry.new_shapes;
    if (!trains || (!forward && doing.kind != ActionKind::backward)) return;
    if (++observed_ <= warm_up_observations) return;
    if (forward) {
        observer_.forward(entry.load, seconds);
    } else {
        observer_.backward(entry.load, seconds);
    }
}

void TraceRecorder::use(Entry& entry, double start, double end) {
    Doing& doing = entry.doing;
    if (!doing.wait && !computes(doing.kind)) return;
    const bool waits = doing.wait || doing.kind == ActionKind::reduce;
    if (!waits) computed_seconds_ += end - start;
    if (keeping()) kept_.push_back({std::move(doing), start, end});
}

std::vector<TraceSpan> TraceRecorder::spans() const {
    std::vector<TraceSpan> spans = transfers_;
    for (const Kept& kept : kept_) spans.push_back(span_of(kept));
    return spans;
}

TraceSpan TraceRecorder::span_of(const Kept& kept) const {
    const Doing& doing = kept.doing;
    TraceSpan span;
    span.rank = rank_;
    span.start_s = kept.start;
    span.end_s = kept.end;
    if (doing.wait) {
        span.name = wait_name(doing.kind);
        span.category = "wait";
        return span;
    }
    std::vector<TraceShare> shares;
    for (const Share& share : doing.shares) {
        shares.push_back({job_.adapter(share.adapter).name, share.tokens});
    }
    const ActionTraits& traits = traits_of(doing.kind);
    span.category = doing.evaluation ? "evaluate" : traits.word;
    span.name = traits.number == ActionNumber::batch
                    ? cat(span.category, " ", shares.front().adapter, " ", doing.number)
                    : cat(span.category, " ", doing.number);
    span.args = share_args(shares);
    return span;
}

}  // namespace loratrain
