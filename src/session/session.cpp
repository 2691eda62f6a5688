#include "session/session.h"

#include <algorithm>
#include <utility>

#include "backend/gpu_info.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/collective.h"
#include "config/job_words.h"
#include "io/files.h"
#include "plan/deployments/find_deployments.h"
#include "plan/memory/memory_model.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "plan/text/describe.h"
#include "plan/text/plan_fields.h"
#include "plan/text/plan_text.h"
#include "session/cluster.h"
#include "session/make_shared_layers.h"
#include "session/redeployment.h"
#include "session/weight_check.h"
#include "train/job_warnings.h"

/// From the job to the stage that is ready to train.

namespace loratrain {

namespace {

/// Plan of the run that is continued; none if plan.yaml cannot be read (of another version).
std::optional<Plan> former_plan(const Job& job) {
    try {
        const std::string path = job.run.dir + "/plan.yaml";
        return plan_from_text(read_text(path), path);
    } catch (const std::exception& error) {
        log::warn(cat("plan.yaml of the run cannot be read, so microbatches are planned again: ",
                      error.what()));
        return std::nullopt;
    }
}

/// Backend of the run in the directory, by its plan.yaml; "" = not known.
std::string former_backend(const Job& job) {
    try {
        const Plan plan = plan_from_text(read_text(job.run.dir + "/plan.yaml"));
        return word_of(backend_words, plan.backend);
    } catch (const std::exception&) {
        return "";
    }
}

}  // namespace

Session::Session(const MpiSession& mpi, const CommandLine& command_line, Job job,
                 const std::optional<FormerSession>& former)
    : Session(mpi, nullptr, command_line, std::move(job), former) {}

Session::Session(const WorkerGroup& group, const CommandLine& command_line, Job job)
    : Session(group.own(), &group, command_line, std::move(job), {}) {}

Session::Session(const MpiSession& mpi, const WorkerGroup* group, const CommandLine& command_line,
                 Job job, const std::optional<FormerSession>& former)
    : mpi_(mpi),
      group_(group),
      command_line_(command_line),
      job_(std::move(job)),
      stop_(former ? former->stop : StopConditions(job_, command_line.stop_after)) {
    watchdog_.emplace(world(), job_.run.peer_timeout, group != nullptr ? mpi_.size() : 0);
    memory_before_ = resident_memory();
    cluster_ = former ? former->cluster : describe_cluster(world(), job_.run.backend);
    cluster_.ranks = mpi_.size();
    cluster_.hosts = host_numbers(mpi_);
    if (former) former_ended_ = former->ended;
    times_.end("devices");
}

void Session::open(BegunSession begun) {
    agree(world(), [&] {
        threads_per_rank(mpi_);  // may refuse what the user wants, before anything is written
        if (mpi_.is_root()) {
            open_inputs(std::move(begun));
        } else if (group_ != nullptr) {
            job_ = job_of_worker(std::move(job_), group_->shape(), group_->worker());
        }
    });
    times_.end(planning_phase);
    const bool first = world().is_root();
    const std::string checked =
        check_weights(world(), job_, first ? inputs_.weights.get() : nullptr);
    times_.end("files");
    agree(world(), [&] {
        if (!first) return;
        directory_.emplace(job_, plan_, command_line_, identity_);
        if (!checked.empty()) log::info(checked);
        checkpoint_ = directory_->checkpoint();
        if (group_ != nullptr) former_run_ = find_former_run(job_, plan_, identity_);
        if (checkpoint_.empty() && former_run_.stored.empty()) return;
        former_ = former_plan(job_);
        if (!former_) return;
        plan_the_rest(ModelSpec(plan_.model));
    });
    checkpoint_ = broadcast_text(mpi_, checkpoint_);
    times_.end(planning_phase);
}

/// Root only.
void Session::open_inputs(BegunSession begun) {
    inputs_ = begun.inputs ? *std::move(begun.inputs) : open_job_inputs(job_);
    name_base_model(job_, *inputs_.weights);
    identity_ = identify(job_, inputs_);
    times_.end("files");
    identity_.backends = {former_backend(job_), word_of(backend_words, cluster_.backend)};
    if (group_ != nullptr) job_ = job_of_worker(std::move(job_), group_->shape(), group_->worker());
    // Memory may have been taken since.
    const bool is_planned =
        begun.planned && begun.planned->plan.bytes_per_rank <= cluster_.bytes_per_rank;
    if (is_planned) return take(*std::move(begun.planned));
    plan_with_built_in_costs(planned_model(job_, *inputs_.weights));
}

void Session::plan_with_built_in_costs(const ModelSpec& model) {
    const Plan* former = former_ ? &*former_ : nullptr;
    const auto found = settle_deployment(job_, model, inputs_.infos, cluster_, former);
    const bool is_known = found && former == nullptr && !cluster_.costs;
    take(is_known ? found->fastest.front().planned
                  : plan_job(job_, model, inputs_.infos, cluster_, former));
}

void Session::plan_the_rest(const ModelSpec& model) {
    if (!may_redeploy(job_)) return plan_with_built_in_costs(model);
    const RunState state = state_in(checkpoint_, job_);
    deployment_ = state.deployment;
    mark_ended(job_, deployment_.made_for);
    plan_with_built_in_costs(model);
    const std::vector<AdapterId> left = unfinished_in(state);
    if (left.empty() || left == std::exchange(deployment_.judged_for, left)) return;
    std::optional<Job> job = redeployed(job_, plan_, inputs_.infos, cluster_, state);
    if (!job) return;
    job_ = std::move(*job);
    deployment_.made_for = left;
    former_.reset();
    take(plan_job(job_, model, inputs_.infos, cluster_));
}

void Session::settle_plan() {
    costs_ = measure_costs(mpi_, job_, plan_, inputs_.infos,
                           [&](const Plan& plan) { return make_backend(plan); });
    agree(world(), [&] {
        if (!world().is_root()) return;
        plan_with_costs();
        for (const std::string& text :
             job_warnings(job_, plan_, inputs_.files, BaseFacts::of(*inputs_.weights))) {
            log::warn(text);
        }
        for (const std::string& text : stages_over_hosts(plan_, mpi_.hosts())) {
            log::warn(text);
        }
        log::block("datasets\n" + describe_datasets(job_, inputs_.files));
        log::block(describe(job_, plan_, report_, inputs_.infos));
    });
    plan_ = broadcast(world(), plan_);
    if (!world().is_root()) costs_.keys.clear();  // the first worker keeps what was measured
    times_.end(cost_phase);
}

void Session::take(PlannedJob planned) {
    plan_ = std::move(planned.plan);
    report_ = std::move(planned.report);
}

void Session::plan_with_costs() {
    if (!costs_.known() || has_built_in_costs(plan_)) return;
    take(plan_again({plan_, report_}, costs_.of_first(), job_, inputs_.infos, cluster_,
                    former_ ? &*former_ : nullptr));
}

void Session::build() {
    agree(world(), [&] { backend_ = make_backend(plan_); });
    times_.end("devices");
    together(mpi_, "connecting the ranks", [&] {
        communicator_ = make_communicator(mpi_, neighbours_in(plan_), link_room(plan_), *backend_);
        lanes_.emplace(mpi_, plan_, *backend_);
        if (plan_.replicas.size() > 1) {
            exchange_ = make_gradient_exchange(mpi_, job_, plan_, *backend_);
        }
    });
    together(mpi_, "measuring messages",
             [&] { settle_costs(mpi_, job_, plan_, *communicator_, *backend_, costs_); });
    costs_.write_to(plan_);
    times_.end("links");
    together(mpi_, "sharing frozen weights",
             [&] { shared_layers_ = make_shared_layers(mpi_, plan_, *backend_); });
    agree(world(), [&] { open_stage_inputs(); });
    agree(world(), [&] { build_stage(); });
    times_.end("weights");
    together(mpi_, "measuring transfers", [&] { measure_transfers(); });
    times_.end("transfers");
}

std::unique_ptr<Backend> Session::make_backend(const Plan& plan) const {
    if (plan.fp8_linears) require_fp8(gpu_info(mpi_.host_rank()));
    return make_rank_backend(mpi_, plan.backend, plan.compute, job_.run.dir + "/gemm_algorithms");
}

void Session::open_stage_inputs() {
    if (mpi_.is_root()) return;
    inputs_.weights = open_weights(job_);
    if (reads_tokens(stage_of(plan_, mpi_.rank()))) {
        inputs_.files = open_datasets(job_, plan_.model.vocab_size);
    }
}

void Session::build_stage() {
    // A worker's adapters come from the dispatcher, those of a checkpoint need no other start.
    const std::vector<AdapterId> first = plan_.first_admitted;
    if (group_ != nullptr || !checkpoint_.empty()) plan_.first_admitted.clear();
    run_.emplace(
        StageRun::Parts{job_, plan_, *inputs_.weights, inputs_.files, *communicator_, *backend_,
                        lanes_->of_rank(), exchange_.get(), shared_layers_.get()},
        mpi_.rank(), job_.logging.trace ? StageRun::Record::spans : StageRun::Record::costs);
    plan_.first_admitted = first;
}

void Session::measure_transfers() {
    if (!shared_layers_ || job_.schedule.costs == CostSource::built_in) return;
    LayerStream* stream = run_->stage().layer_stream();
    barrier(mpi_);
    const bool like_first = plan_.replicas[place_of(plan_, mpi_.rank()).replica].tensor ==
                            plan_.replicas.front().tensor;
    const bool counts = stream != nullptr && like_first;
    const std::unique_ptr<StreamClock> clock = backend_->make_clock();
    const std::vector<double> seconds =
        gather_numbers(mpi_, counts ? stream->measured_load(*clock) : 0.0);
    const double slowest = *std::max_element(seconds.begin(), seconds.end());
    plan_.costs.layer_transfer = slowest;
    for (DegreeCosts& of : plan_.measured) of.costs.layer_transfer = slowest;
}

}  // namespace loratrain
