#include "app/bench_run.h"

#include <chrono>

#include "base/error.h"
#include "comm/collective.h"
#include "plan/plan_window.h"

namespace loratrain {

BenchRun::BenchRun(const BenchCase& bench_case, const MpiSession& mpi, Communicator& communicator,
                   Backend& backend)
    : case_(bench_case),
      mpi_(mpi),
      backend_(backend),
      stage_(case_.job, case_.plan, static_cast<std::size_t>(mpi.rank()), *case_.weights, backend),
      runner_(case_.job, case_.plan, static_cast<std::size_t>(mpi.rank()), stage_, communicator,
              backend),
      loader_(case_.files, std::vector<DatasetId>(case_.job.adapters.size()), true) {}

Window BenchRun::next_window(int rounds) {
    Progress progress;
    progress.round = done_;
    progress.steps.assign(case_.job.adapters.size(), done_);
    progress.stopped.assign(case_.job.adapters.size(), false);
    done_ += rounds;
    return plan_window(case_.job, case_.plan, case_.infos, progress, rounds);
}

WindowTime BenchRun::run(int rounds) {
    const Window window = next_window(rounds);
    LORATRAIN_CHECK(window.rounds == rounds, "planned ", window.rounds, " rounds of ", rounds);
    WindowTime time;
    for (const BatchPlan& batch : window.batches) time.tokens += static_cast<double>(batch.tokens);
    barrier(mpi_);
    const auto start = std::chrono::steady_clock::now();
    loader_.start(window);
    runner_.run(window, loader_, {});
    backend_.synchronize();
    barrier(mpi_);
    time.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return time;
}

}  // namespace loratrain
