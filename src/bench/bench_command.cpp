#include "bench/bench_command.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "backend/gpu_info.h"
#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "bench/bench_report.h"
#include "bench/bench_run.h"
#include "comm/collective.h"
#include "measure/profile_costs.h"
#include "measure/profile_links.h"
#include "measure/profile_ranks.h"
#include "plan/cost_fields.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/offload.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "session/rank_backend.h"

namespace loratrain {

namespace {

class BenchCommand {
  public:
    BenchCommand(const CommandLine::Bench& bench, const MpiSession& mpi)
        : bench_(bench), mpi_(mpi), backend_(make_bench_backend()) {}

    BenchResult measure() {
        auto data = std::make_unique<RandomData>(bench_);
        BenchCase with_lora(bench_, mpi_, *data, true);
        const std::int64_t tokens = only_replica(with_lora.plan).replica.microbatch_tokens;
        const BenchCase lora_off(bench_, mpi_, *data, false, tokens);
        data.reset();  // the files stay open, and a bench that is killed leaves none
        communicator_ = make_communicator(mpi_, neighbours_in(with_lora.plan),
                                          link_room(with_lora.plan), *backend_);
        if (bench_.predict) profile(with_lora);
        BenchResult result;
        result.backend = backend_->description();
        if (bench_.backend == "cuda") result.device = gpu_info(mpi_.host_rank()).name;
        result.compute = backend_->compute_dtype();
        result.fp8_linears = with_lora.plan.fp8_linears;
        result.model = bench_model(bench_);
        result.microbatch_tokens = tokens;
        const ReplicaView view = only_replica(with_lora.plan);
        for (const StagePlan& stage : view.replica.stages) {
            result.streamed_layers += streamed_layers(stage);
            result.kept_layers += kept_layers(view, stage);
            result.offloaded_layers += offloaded_layers(view, stage);
        }
        result.recompute = view.replica.recompute == Recompute::layer;
        measure_window(with_lora, result);
        if (bench_.quick) return result;
        result.lora_off = measure_without(lora_off);
        result.gemm_seconds = gemm_seconds(result.model, tokens, *backend_);
        result.profile = profile_window(bench_, with_lora, mpi_, *communicator_, *backend_);
        return result;
    }

  private:
    /// The root's costs count; a backend of its own keeps them out of the memory that is measured.
    void profile(BenchCase& bench_case) {
        barrier(mpi_);
        const std::unique_ptr<Backend> backend = make_bench_backend();
        const auto start = std::chrono::steady_clock::now();
        CostModel costs = profile_ranks(mpi_, bench_case.job, bench_case.plan, *backend);
        profile_seconds_ = seconds_since(start);
        const auto message = profile_messages(bench_case.plan, mpi_, *communicator_, *backend_);
        if (message) costs.message = *message;
        bench_case.plan_with(broadcast(mpi_, costs));
    }

    std::unique_ptr<Backend> make_bench_backend() const {
        const NumberTypes types = bench_types(bench_);
        if (types.fp8_linears && bench_.backend == "cuda") require_fp8(gpu_info(mpi_.host_rank()));
        return make_rank_backend(mpi_, bench_backend(bench_), types.compute);
    }

    void measure_window(const BenchCase& with_lora, BenchResult& result) {
        meet_shapes(with_lora);
        BenchRun run(with_lora, mpi_, *communicator_, *backend_, bench_.predict);
        run.run(bench_warmup_rounds);
        std::optional<CostModel> refined;
        if (bench_.predict) refined = run.refined_costs();
        result.window = run.run(bench_.steps);
        if (bench_.predict) {
            const CostModel& costs = with_lora.plan.costs;
            result.prediction = {
                costs, profile_seconds_, run.predicted_seconds(costs), refined, {}};
            if (refined) result.prediction->refined_seconds = run.predicted_seconds(*refined);
            for (const double busy : gather_numbers(mpi_, run.busy_seconds())) {
                result.idle_shares.push_back(1.0 - busy / result.window.seconds);
            }
        }
        if (mpi_.size() == 1) {
            // Some step of the window took no longer than its mean.
            double fastest = result.window.seconds / bench_.steps;
            for (int i = 0; i < bench_.steps; ++i) fastest = std::min(fastest, run.run(1).seconds);
            result.fastest_step = fastest;
        }
        const auto rank = static_cast<std::size_t>(mpi_.rank());
        result.planned_bytes = gather_numbers(mpi_, with_lora.plan.memory[rank].total());
        result.planned_host_bytes = gather_numbers(mpi_, with_lora.plan.memory[rank].host);
        result.allocated_bytes =
            gather_numbers(mpi_, backend_->memory().current + communicator_->bytes());
        result.peak_bytes = gather_numbers(mpi_, backend_->memory().peak);
    }

    /// Where lengths differ a GPU meets new shapes for minutes, and chooses algorithms for each:
    /// what is measured is the time after that, with the microbatches of this first time.
    void meet_shapes(const BenchCase& bench_case) {
        if (bench_.lengths == "fixed" || bench_.backend != "cuda") return;
        BenchRun run(bench_case, mpi_, *communicator_, *backend_);
        run.run(bench_warmup_rounds);
        run.run(bench_.steps);
    }

    WindowTime measure_without(const BenchCase& lora_off) {
        meet_shapes(lora_off);
        BenchRun run(lora_off, mpi_, *communicator_, *backend_);
        run.run(bench_warmup_rounds);
        return run.run(bench_.steps);
    }

    const CommandLine::Bench& bench_;
    const MpiSession& mpi_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Communicator> communicator_;
    double profile_seconds_ = 0.0;
};

}  // namespace

ExitCode bench_command(const CommandLine& command_line, const MpiSession& mpi) {
    const CommandLine::Bench& bench = command_line.bench;
    try {
        const BenchResult result = BenchCommand(bench, mpi).measure();
        log::block(bench.json ? bench_json(bench, result) : bench_text(bench, result));
        return ExitCode::done;
    } catch (const InputError&) {
        throw;
    } catch (const std::exception& error) {
        if (mpi.size() == 1) throw;
        log::error(cat("on host ", mpi.host(), ": ", error.what()));
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

}  // namespace loratrain
