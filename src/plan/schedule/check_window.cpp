#include "plan/schedule/check_window.h"

#include <optional>

#include "plan/replica_view.h"
#include "plan/schedule/check_contents.h"
#include "plan/schedule/check_execution.h"
#include "plan/schedule/check_joint.h"

namespace loratrain {

namespace {

std::int32_t size_of(const std::vector<Microbatch>& microbatches) {
    return static_cast<std::int32_t>(microbatches.size());
}

}  // namespace

struct StreamChecker::State {
    State(const Job& of_job, const Plan& plan) : job(of_job), views(views_of(plan)) {}

    bool continues(const JointWindow& joint) const;
    void begin();
    void run(const JointWindow& joint, Findings& findings);

    const Job& job;
    std::vector<ReplicaView> views;
    std::vector<std::unique_ptr<StreamExecution>> executions;  ///< none between streams
    std::int32_t batches = 0;
    std::vector<std::int32_t> microbatches;  ///< of the replicas
    std::optional<SharedSums> sums;
};

void StreamChecker::State::begin() {
    executions.clear();
    std::size_t stages = 0;
    for (const ReplicaView& view : views) stages += view.replica.stages.size();
    sums.emplace(stages);
    std::size_t first_stage = 0;
    for (std::size_t r = 0; r < views.size(); ++r) {
        executions.push_back(std::make_unique<StreamExecution>(
            views[r], views.size() == 1 ? "" : cat("replica ", r, ", "), *sums, first_stage));
        first_stage += views[r].replica.stages.size();
    }
    batches = 0;
    microbatches.assign(views.size(), 0);
}

bool StreamChecker::State::continues(const JointWindow& joint) const {
    if (executions.empty() || joint.common().first_batch != batches) return false;
    for (std::size_t r = 0; r < views.size(); ++r) {
        if (joint.replicas[r].first_microbatch != microbatches[r]) return false;
    }
    return true;
}

void StreamChecker::State::run(const JointWindow& joint, Findings& findings) {
    sums->announce(joint.reductions);
    for (bool progress = true; progress;) {
        progress = false;
        for (const auto& execution : executions) progress = execution->run() || progress;
    }
    for (std::size_t r = 0; r < views.size(); ++r) executions[r]->end(joint.replicas[r]);
    if (views.size() > 1) check_reduced(joint, *sums, findings);
}

StreamChecker::StreamChecker(const Job& job, const Plan& plan)
    : state_(std::make_unique<State>(job, plan)) {}
StreamChecker::~StreamChecker() = default;

std::vector<std::string> StreamChecker::check(const JointWindow& joint) {
    Findings findings;
    State& state = *state_;
    if (joint.replicas.size() != state.views.size()) {
        findings.add("windows of ", joint.replicas.size(), " replicas, the plan has ",
                     state.views.size());
        return findings.take();
    }
    const Window& window = joint.common();
    if (window.begins) state.begin();
    if (!state.continues(joint)) {
        findings.add("the window does not continue the one before");
        return findings.take();
    }
    check_agreement(joint, findings);
    std::vector<SegmentBatches> batch_of;
    bool valid = true;
    for (std::size_t r = 0; r < state.views.size(); ++r) {
        const Window& other = joint.replicas[r];
        valid = check_references(state.views[r], other, findings) && valid;
        batch_of.push_back(find_segment_batches(other, findings));
    }
    if (valid && findings.empty()) {
        check_contents(state.job, state.views, joint, batch_of, findings);
        for (std::size_t r = 0; r < state.views.size(); ++r) {
            state.executions[r]->begin(joint.replicas[r], batch_of[r], findings);
        }
        state.run(joint, findings);
    }
    state.batches += static_cast<std::int32_t>(window.batches.size());
    for (std::size_t r = 0; r < state.views.size(); ++r) {
        state.microbatches[r] += size_of(joint.replicas[r].microbatches);
    }
    if (window.drains) state.executions.clear();
    return findings.take();
}

std::size_t StreamChecker::size() const {
    std::size_t size = state_->sums ? state_->sums->size() : 0;
    for (const auto& execution : state_->executions) size += execution->size();
    return size;
}

std::vector<std::string> check_window(const Job& job, const Plan& plan, const JointWindow& joint) {
    return StreamChecker(job, plan).check(joint);
}

std::vector<std::string> check_window(const Job& job, const Plan& plan, const Window& window) {
    return check_window(job, plan, JointWindow{{window}, {}});
}

}  // namespace loratrain
