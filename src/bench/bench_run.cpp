#include "bench/bench_run.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/system.h"
#include "comm/collective.h"
#include "measure/makespan_check.h"
#include "measure/measured_trace.h"
#include "plan/predict/simulate.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission_rules.h"
#include "plan/schedule/plan_window.h"
#include "plan/schedule/window_fields.h"

namespace loratrain {

namespace {

/// Adds the tokens of a window's samples and their squares, padding left out.
void add_load(const BenchCase& bench_case, const Window& window, WindowTime& time) {
    for (const Microbatch& microbatch : window.microbatches) {
        for (const Segment& segment : microbatch.segments) {
            const DatasetId dataset = bench_case.job.adapter(segment.adapter).dataset;
            for (const SampleRef& sample : segment.samples) {
                const double tokens = bench_case.inputs.infos[index(dataset)]
                                          .train[static_cast<std::size_t>(sample.index)]
                                          .tokens;
                time.tokens += tokens;
                time.squares += tokens * tokens;
            }
        }
    }
}

/// Losses of batches as rounds have them.
class RoundLosses {
  public:
    void add(const BatchPlan& batch, double loss_sum) {
        auto& [sum, denominator] = rounds_[batch.round];
        sum += loss_sum;
        denominator += batch.denominator;
    }
    std::vector<double> means() const {
        std::vector<double> means;
        for (const auto& [round, sums] : rounds_) means.push_back(sums.first / sums.second);
        return means;
    }

  private:
    std::map<std::int32_t, std::pair<double, double>> rounds_;
};

}  // namespace

BenchRun::BenchRun(const BenchCase& bench_case, const MpiSession& mpi, Communicator& communicator,
                   Backend& backend, bool observe)
    : case_(bench_case),
      mpi_(mpi),
      backend_(backend),
      run_(
          {case_.job, case_.plan, *case_.inputs.weights, case_.inputs.files, communicator, backend},
          mpi.rank(), observe ? StageRun::Record::costs : StageRun::Record::nothing) {}

std::vector<Window> BenchRun::next_windows(int rounds) {
    const std::size_t adapters = case_.job.adapters.size();
    const bool one_by_one = most_admitted(case_.job) == 1;
    std::vector<Window> windows;
    for (std::size_t turn = 0; turn < (one_by_one ? adapters : 1); ++turn) {
        Progress progress;
        progress.round = done_;
        progress.steps.assign(adapters, done_);
        progress.stopped.assign(adapters, one_by_one);
        progress.stopped[turn] = false;
        Window window;
        if (mpi_.is_root()) {
            window = plan_window(case_.job, case_.plan, case_.inputs.infos, progress, rounds);
        }
        windows.push_back(broadcast(mpi_, window));
        LORATRAIN_CHECK(windows.back().rounds == rounds, "planned ", windows.back().rounds,
                        " rounds of ", rounds);
    }
    done_ += rounds;
    return windows;
}

WindowTime BenchRun::run(int rounds) {
    windows_ = next_windows(rounds);
    WindowTime time;
    for (const Window& window : windows_) add_load(case_, window, time);
    run_.recorder().settle();
    const double computed_before = run_.recorder().computed_seconds();
    RoundLosses losses;
    PipelineRunner::Hooks hooks;
    hooks.on_batch = [&](const auto& batch) { losses.add(batch.batch, batch.loss_sum); };
    barrier(mpi_);
    const auto start = std::chrono::steady_clock::now();
    for (const Window& window : windows_) {
        run_.loader().start(window);
        run_.runner().run(window, run_.loader(), hooks);
    }
    backend_.synchronize();
    barrier(mpi_);
    const std::vector<double> seconds = gather_numbers(mpi_, seconds_since(start));
    time.seconds = *std::max_element(seconds.begin(), seconds.end());
    time.losses = losses.means();
    run_.recorder().settle();
    busy_seconds_ = run_.recorder().computed_seconds() - computed_before;
    return time;
}

double BenchRun::predicted_seconds(const CostModel& costs) const {
    double seconds = 0.0;
    for (const Window& window : windows_) {
        seconds += loratrain::predicted_seconds(case_.job, case_.plan, costs, window);
    }
    return seconds;
}

/// What was observed side by side, less what the simulator takes for the effect of that.
std::optional<CostModel> BenchRun::refined_costs() {
    auto refined = gather_refined_costs(mpi_, case_.plan, run_.recorder());
    const CostModel& costs = case_.plan.costs;
    if (!refined || costs.full_speed_ranks <= 0.0) return refined;
    Simulator simulator(case_.job, only_replica(case_.plan), costs);
    for (const Window& window : windows_) simulator.add(window);
    refined = scaled(*refined, 1.0 / simulator.timeline().slowdown());
    refined->full_speed_ranks = costs.full_speed_ranks;
    return refined;
}

}  // namespace loratrain
