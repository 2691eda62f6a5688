#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "train/worker_ranks.h"

namespace loratrain::test {

/// The ranks of a worker that train nothing: all of them in this process, in step. Steps and
/// evaluations end in the order of the windows' actions, so what is under way at the end of a
/// window ends in the next one. Every value of an adapter on a rank is the number of steps that it
/// has taken there, so that files show of which step they are. A command that ranks could not obey
/// (an adapter that is not resident trains, one that is under way is sent or released) fails the
/// test.
class FakeRanks : public WorkerRanks {
  public:
    /// What windows are planned for; `job` and `plan` may grow. All outlive the ranks.
    FakeRanks(const Job& job, const Plan& plan);

    // ---- what a test sets

    using OfStep = std::function<double(AdapterId adapter, std::int32_t step)>;
    OfStep loss = [](AdapterId, std::int32_t step) { return 1.0 / step; };  ///< steps from 1 on
    OfStep grad_sumsq = [](AdapterId, std::int32_t) { return 1.0; };
    OfStep eval_loss = [](AdapterId, std::int32_t step) { return 1.0 / (step + 1); };
    std::function<void(const BatchPlan&)> before_step = {};
    std::function<void(const std::string&)> on_order = {};  ///< with each line of the log
    /// How evaluations come to rank 0: as another rank's reports, after so many looks for one.
    std::optional<int> looks_for_results = {};
    bool results_reversed = false;  ///< of those that are under way the newest first
    int looks_for_parts = 0;        ///< the same of parts of adapters
    bool parts_together = false;    ///< those that wait come with the first of them
    /// Of an inbox file on a rank; "" = none.
    std::function<std::string(int rank, const InboxFile&)> problem_of = {};
    /// Adds what a file adds to job, plan and data.
    std::function<void(const InboxFile&)> grow = {};
    int signal = 0;

    // ---- what a test reads

    /// Commands in the order in which they were given: "admit 0 1", "begin 0+2" (a window, from an
    /// empty pipeline), "window 2+2", "copy 0", ...
    const std::vector<std::string>& log() const { return log_; }
    /// Whether it has such a line, and where: lines before it.
    std::optional<std::size_t> find(const std::string& line, std::size_t from = 0) const;
    std::size_t count(const std::string& line) const;
    /// The stream that is under way as the first such command is given goes on behind it.
    bool is_in_stream(const std::string& line) const;
    /// Adapters that took a step in a round, ascending.
    std::vector<AdapterId> trained_in(std::int32_t round) const;
    /// Its rounds, ascending.
    std::vector<std::int32_t> rounds_of(AdapterId adapter) const;
    std::int32_t steps(AdapterId adapter) const { return steps_on(0, adapter); }
    /// Streams of windows that train.
    int streams() const { return streams_; }
    /// Evaluations in the order in which they ended.
    const std::vector<AdapterAtStep>& evaluated() const { return evaluated_; }
    std::size_t resident() const;

    // ---- WorkerRanks

    int count() const override { return ranks_; }
    double share_of_host() const override { return 1.0; }
    Residence residence(AdapterId adapter) const override;
    void order(const WorkerCommand& command) override;
    void perform_ordered() override;
    void order_window(const PlannedWindow& window) override;
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks) override;
    std::vector<GeneratedText> generate(AdapterId adapter) override;
    std::vector<GeneratedText> write_texts(const std::vector<TextOrder>& orders) override;
    void finish() override { write("finished"); }
    void progress() override {}
    void go_on_reading() override {}
    std::optional<Report> report() override;
    int reported_signal() override { return signal; }
    AdapterBank::Counters copied_counters(AdapterId adapter) const override;
    std::vector<NamedTensor> join(AdapterId adapter,
                                  const AdapterParts::ByRank& all) const override;
    ReferenceValues references(const ReferenceId& reference) const override;
    std::string plan_with_addition() const override { return "plan"; }

  private:
    struct Ordered {
        WorkerCommand command;
        std::int64_t windows = 0;  ///< before it
    };
    /// A part that a rank sends as soon as it has taken a step.
    struct Wanted {
        PartKey key;
        std::int32_t step = 0;
    };
    struct Waiting {
        Report report;
        int looks = 0;
    };

    void write(const std::string& line);
    void perform(const WorkerCommand& command);
    void admit(const std::vector<AdapterId>& adapters);
    void release(AdapterId adapter);
    void load(AdapterId adapter, const std::string& directory);
    void check(const std::vector<InboxFile>& files);
    void take();
    void send_all(const PartKey& key);
    void want(const PartKey& key);
    void send(int rank, const PartKey& key);
    bool is_first_replica(int rank) const;
    bool is_under_way(AdapterId adapter) const;
    std::int32_t steps_on(int rank, AdapterId adapter) const;
    void note_batches(const JointWindow& window);
    void act(const JointWindow& window, std::size_t replica, std::size_t stage,
             const Action& action, const PipelineRunner::Hooks& hooks);
    void step(std::size_t replica, std::size_t stage, std::int32_t batch,
              const PipelineRunner::Hooks& hooks);
    void evaluate(std::size_t replica, MicrobatchId microbatch, const PipelineRunner::Hooks& hooks);
    EvalResult result_of(std::size_t replica, const BatchPlan& batch) const;

    const Job& job_;
    const Plan& plan_;
    int ranks_ = 0;
    std::vector<std::string> log_;
    std::map<AdapterId, Residence> residences_;
    std::deque<Ordered> ordered_;
    std::int64_t windows_ordered_ = 0;
    std::int64_t windows_trained_ = 0;
    std::deque<Waiting> reports_;
    std::deque<InboxFile> additions_;                          ///< checked and not taken
    std::map<std::pair<int, AdapterId>, std::int32_t> steps_;  ///< by rank
    std::map<AdapterId, AdapterBank::Counters> counters_;      ///< of copies
    std::map<std::int32_t, BatchPlan> batches_;                ///< of the stream
    std::map<int, std::set<std::int32_t>> open_;               ///< not stepped, by rank
    std::map<std::pair<std::size_t, MicrobatchId>, std::vector<BatchPlan>> evaluations_;
    std::map<int, std::vector<Wanted>> wanted_;  ///< by rank
    std::map<std::int32_t, std::set<AdapterId>> rounds_;
    int streams_ = 0;
    std::vector<AdapterAtStep> evaluated_;
};

}  // namespace loratrain::test
