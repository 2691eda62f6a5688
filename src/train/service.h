#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "train/pipeline_runner.h"
#include "train/report.h"
#include "train/stream_planner.h"

namespace loratrain {

/// A task of a worker beside training: checkpoints, exports, evaluations, texts, rungs of trials,
/// admission. The stream (stream_trainer.h) calls the functions below on all services in the order
/// of Services::order() (services/services.h). A service overrides those that concern it. Rank 0 of
/// a worker only.
class Service {
  public:
    static constexpr std::int32_t no_round = std::numeric_limits<std::int32_t>::max();

    Service() = default;
    virtual ~Service() = default;
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    // ---- asked before a window is planned; before the first window of a stream: the last three

    // awaits_results, needs_drain and change: the first service that decides ends the round of
    // questions.

    /// True if results that are missing decide who trains in the round.
    virtual bool awaits_results(std::int32_t /*round*/) const { return false; }
    /// True if something needs an empty pipeline: the stream ends before the round.
    virtual bool needs_drain(std::int32_t /*round*/) { return false; }
    /// Adds the adapters that come and go before the window. False if that needs an empty pipeline.
    virtual bool change(const Progress& /*planned*/, StreamChange& /*change*/) { return true; }
    /// The stream ends before this round at the latest.
    virtual std::int32_t last_round(const Progress& /*planned*/) const { return no_round; }
    /// The next round after the planned ones with which a window has to begin.
    virtual std::int32_t next_event(const Progress& /*planned*/) const { return no_round; }
    /// Adds adapters whose evaluations after the window decide who trains next.
    virtual void add_deciding(const Progress& /*planned*/,
                              std::vector<AdapterId>& /*adapters*/) const {}

    // ---- called while the stream goes on

    /// All services have been asked: the window that begins with the round is planned now.
    virtual void on_planning(std::int32_t /*round*/) {}
    /// A stream begins with the adapters that are running.
    virtual void begin_stream() {}
    /// The window that begins with the round is sent: ranks execute commands of this call before
    /// it. `stepped`: adapters whose last step all stages have taken by then.
    virtual void before_window(std::int32_t /*round*/, const std::vector<AdapterId>& /*stepped*/) {}
    /// A step has ended. Called in the order of the steps.
    virtual void on_step(const BatchResult& /*result*/) {}
    /// An evaluation has ended. Its result may come before on_step() of the step before it.
    virtual void on_evaluation(const EvalResult& /*result*/) {}
    /// All ranks that were asked have sent their values of the part.
    virtual void on_part(const PartKey& /*key*/, AdapterParts::ByRank& /*values*/) {}
    virtual void on_report(const AdditionsReport& /*report*/) {}
    /// Between actions: continues background work.
    virtual void go_on() {}

    // ---- a run that grows while the stream goes on

    /// It is time to plan the next window.
    virtual void look_for_orders() {}
    /// True if the next window is not planned before the current one has trained.
    virtual bool delays_planning() const { return false; }
    /// True if reports are missing: windows are short, and the stream waits for the reports.
    virtual bool awaits_reports() const { return false; }
    /// True if adapters wait for something that may come any moment: windows are short.
    virtual bool looks_often() const { return false; }
    /// Between two windows, while none is planned: adds adapters to the job, or samples to its
    /// data. True if it has.
    virtual bool grow() { return false; }
};

}  // namespace loratrain
