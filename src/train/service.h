#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "train/pipeline_runner.h"
#include "train/report.h"
#include "train/stream_planner.h"

namespace loratrain {

/// Something that a worker does beside training: checkpoints, exports, evaluations, texts, rungs of
/// trials, who comes and goes. The stream (stream_trainer.h) asks all services the same questions,
/// in the order of Services::order() (services/services.h), and tells them the same things. A
/// service overrides what concerns it. Rank 0 of a worker only.
class Service {
  public:
    static constexpr std::int32_t no_round = std::numeric_limits<std::int32_t>::max();

    Service() = default;
    virtual ~Service() = default;
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    // ---- asked before a window is planned; the first window of a stream: only the last three
    // awaits_results, needs_drain, change and grow: services behind the first that decides are not
    // asked.

    /// Who trains in the round depends on results that have not come.
    virtual bool awaits_results(std::int32_t /*round*/) const { return false; }
    /// The stream has to end before the round: something needs an empty pipeline.
    virtual bool needs_drain(std::int32_t /*round*/) { return false; }
    /// Adds who comes and goes before the window. False: that needs an empty pipeline.
    virtual bool change(const Progress& /*planned*/, StreamChange& /*change*/) { return true; }
    /// The round before which the stream ends; it may end earlier.
    virtual std::int32_t last_round(const Progress& /*planned*/) const { return no_round; }
    /// The next round, behind the planned ones, with which a window has to begin.
    virtual std::int32_t next_event(const Progress& /*planned*/) const { return no_round; }
    /// Adds adapters whose evaluations behind the window decide who trains next.
    virtual void add_deciding(const Progress& /*planned*/,
                              std::vector<AdapterId>& /*adapters*/) const {}

    // ---- called while the stream goes on

    /// A window that begins with the round is planned now: all services have been asked.
    virtual void on_planning(std::int32_t /*round*/) {}
    /// A stream begins with the adapters that are running.
    virtual void begin_stream() {}
    /// The window that begins with the round goes out: what is ordered now, ranks perform before
    /// it. `stepped`: adapters of which all stages have the last step by then.
    virtual void before_window(std::int32_t /*round*/, const std::vector<AdapterId>& /*stepped*/) {}
    /// In the order in which steps end.
    virtual void on_step(const BatchResult& /*result*/) {}
    /// May come before the step that it is behind.
    virtual void on_evaluation(const EvalResult& /*result*/) {}
    /// All ranks that were asked have sent their values.
    virtual void on_part(const PartKey& /*key*/, AdapterParts::ByRank& /*values*/) {}
    virtual void on_report(const AdditionsReport& /*report*/) {}
    /// Between actions: goes on with what is under way beside the stream.
    virtual void go_on() {}

    // ---- a run that grows while the stream goes on

    /// At the time when the next window is to be planned.
    virtual void look_for_orders() {}
    /// That window is to be planned when the one before has trained.
    virtual bool delays_planning() const { return false; }
    /// Reports have yet to come: windows are short meanwhile, and the stream waits for them.
    virtual bool awaits_reports() const { return false; }
    /// Between two windows, none being planned: the job grows. Whether it has.
    virtual bool grow() { return false; }
};

}  // namespace loratrain
