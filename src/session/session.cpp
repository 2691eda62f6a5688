#include "session/session.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"
#include "plan/deploy/make_plan.h"
#include "plan/place.h"
#include "plan/predict/find_deployments.h"
#include "plan/text/describe.h"
#include "plan/text/plan_text.h"
#include "session/cluster.h"
#include "session/rank_backend.h"
#include "session/weight_check.h"
#include "train/job_warnings.h"

/// From the job to the stage that is ready to train.

namespace loratrain {

namespace {

/// The plan of the run that is continued; none where it cannot be read, by a version before.
std::optional<Plan> former_plan(const Job& job) {
    try {
        return plan_from_text(read_text(job.run.dir + "/plan.yaml"));
    } catch (const std::exception& error) {
        log::warn(cat("sizes of microbatches are chosen anew: ", error.what()));
        return std::nullopt;
    }
}

}  // namespace

Session::Session(const MpiSession& mpi, const CommandLine& command_line, Job job)
    : mpi_(mpi),
      command_line_(command_line),
      job_(std::move(job)),
      stop_(job_, command_line.stop_after) {
    watchdog_.emplace(mpi_, job_.run.peer_timeout);
    memory_before_ = resident_memory();
    cluster_ = describe_cluster(mpi_, job_.run.backend);
}

void Session::open() {
    agree(mpi_, [&] {
        threads_per_rank(mpi_);  // may refuse what the user wants, before anything is written
        if (!mpi_.is_root()) return;
        inputs_ = open_job_inputs(job_);
        name_base_model(job_, *inputs_.weights);
        plan_with_built_in_costs(inputs_.weights->spec());
        identity_ = identify(job_, inputs_);
    });
    const std::string checked = check_weights(mpi_, job_, inputs_.weights.get());
    agree(mpi_, [&] {
        if (!mpi_.is_root()) return;
        directory_.emplace(job_, plan_, command_line_, identity_);
        if (!checked.empty()) log::info(checked);
        checkpoint_ = directory_->checkpoint();
        if (checkpoint_.empty()) return;
        former_ = former_plan(job_);
        if (!former_) return;
        plan_with_built_in_costs(ModelSpec(plan_.model));
    });
    checkpoint_ = broadcast_text(mpi_, checkpoint_);
}

void Session::plan_with_built_in_costs(const ModelSpec& model) {
    const Plan* former = former_ ? &*former_ : nullptr;
    settle_deployment(job_, model, inputs_.infos, cluster_, former);
    take(plan_job(job_, model, inputs_.infos, cluster_, former));
}

void Session::settle_plan() {
    costs_ = measure_costs(mpi_, job_, plan_, inputs_.infos,
                           [&](const Plan& plan) { return make_backend(plan); });
    std::string plan_text;
    agree(mpi_, [&] {
        if (!mpi_.is_root()) return;
        plan_with_costs();
        plan_text = to_text(plan_);
        for (const std::string& text :
             job_warnings(job_, plan_, inputs_.files, inputs_.weights->max_positions())) {
            log::warn(text);
        }
        for (const std::string& text : stages_over_hosts(plan_, mpi_.hosts())) {
            log::warn(text +
                      ": lanes sum in every layer, over the network there; start as many "
                      "ranks on each host as lanes can share evenly");
        }
        log::block("datasets\n" + describe_datasets(job_, inputs_.files));
        log::block(describe(job_, plan_, report_, inputs_.infos));
    });
    plan_ = plan_from_text(broadcast_text(mpi_, plan_text));
}

void Session::take(PlannedJob planned) {
    plan_ = std::move(planned.plan);
    report_ = std::move(planned.report);
}

void Session::plan_with_costs() {
    if (!costs_.known()) return;
    take(plan_again({plan_, report_}, costs_.costs, job_, inputs_.infos, cluster_,
                    former_ ? &*former_ : nullptr));
}

void Session::build() {
    agree(mpi_, [&] { backend_ = make_backend(plan_); });
    together(mpi_, "connecting the ranks", [&] {
        communicator_ = make_communicator(mpi_, neighbours_in(plan_), *backend_);
        lanes_.emplace(mpi_, plan_, *backend_);
        if (plan_.replicas.size() > 1) exchange_.emplace(mpi_, job_, plan_, *backend_);
    });
    together(mpi_, "measuring messages",
             [&] { settle_costs(mpi_, job_, plan_, *communicator_, *backend_, costs_); });
    if (costs_.known()) plan_.costs = costs_.costs;
    agree(mpi_, [&] { build_stage(); });
}

std::unique_ptr<Backend> Session::make_backend(const Plan& plan) const {
    return make_rank_backend(mpi_, plan.backend, plan.compute,
                             cat(job_.run.dir, "/gemm_algorithms.rank", mpi_.rank()));
}

void Session::build_stage() {
    if (!mpi_.is_root()) {
        inputs_.weights = open_weights(job_);
        if (reads_tokens(stage_of(plan_, mpi_.rank()))) {
            inputs_.files = open_datasets(job_, plan_.model.vocab_size);
        }
    }
    run_.emplace(StageRun::Parts{job_, plan_, *inputs_.weights, inputs_.files, *communicator_,
                                 *backend_, lanes_->of_rank(), exchange_ ? &*exchange_ : nullptr},
                 mpi_.rank(),
                 job_.logging.trace ? StageRun::Record::spans : StageRun::Record::costs);
}

}  // namespace loratrain
