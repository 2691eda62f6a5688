#pragma once

#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/directive_channel.h"
#include "train/adapter_table.h"
#include "train/checkpoint/background_checkpoint.h"
#include "train/checkpoint/state_at_round.h"
#include "train/performer.h"
#include "train/records/journal.h"
#include "train/run_clock.h"
#include "train/search/sweep_records.h"
#include "train/start_key.h"
#include "train/stream_trainer.h"
#include "train/workers/worker_link.h"

namespace loratrain {

/// Decides, on rank 0 alone, who trains, and when to evaluate, to save, to export, to take orders
/// and to end; posts what it decides to the other ranks and does its own part of it. Training goes
/// on as one stream of windows until something needs an empty pipeline, as a stop of the run.
/// Evaluations go on in the stream, beside what others train, and adapters end in it, also as
/// ordered, and make room for those that wait, and for those that are added. Where the result of an
/// evaluation may end an adapter early, or a trial at a rung, what comes behind is planned when it
/// is there. Checkpoints and the best states of adapters are written while it goes on, unless there
/// is no memory for copies. Texts of adapters that have ended are written with the pipeline empty,
/// of several at a time; whether another deployment pays behind an end is judged before it.
class Conductor {
  public:
    /// The arguments outlive it.
    Conductor(const TrainerParts& parts, Performer& performer, DirectiveChannel& channel);

    /// Trainer::restore.
    void restore(const RunState& state, bool set_back);

    /// Trains to the end or to a stop, and finishes the other ranks. `signal`: that came to any
    /// rank so far, 0 = none.
    ExitCode run(int signal);
    /// run() has thrown: records why.
    void record_failure(const std::string& why);

    /// For a checkpoint: of a worker, the adapters that it has and that have not ended.
    RunState state() const;
    /// After run(): what is left is to be trained in another deployment.
    bool goes_on() const { return goes_on_; }
    /// Why run() ended with ExitCode::stopped_resume_me.
    const std::string& stop_reason() const { return stop_reason_; }
    const MakespanCheck& makespan() const { return stream_.makespan(); }

  private:
    void post(const Directive& directive) { channel_.post(to_text(directive)); }

    void train_and_settle();
    void log_planning() const;
    ExitCode end();

    // One stream of windows.
    std::vector<AdapterId> train_stream();
    std::int32_t rounds_to_event() const;
    std::int32_t last_round(const Progress& planned) const;
    std::int32_t most_rounds(const Progress& planned) const;
    bool drain_wanted(std::int32_t round);
    void on_batch(const BatchResult& result);
    void on_evaluation(const EvalResult& result);
    void note_evaluations();
    std::vector<AdapterId> choose_exports(const std::vector<AdapterId>& stepped);
    bool must_give_up_any() const;
    void settle(AdapterId adapter);
    bool ends_need_drain() const;
    bool is_evaluated_behind(const BatchPlan& batch) const;
    bool is_evaluated(AdapterId adapter) const;
    std::int32_t steps_left(AdapterId adapter) const;

    // Ends that the stream goes on behind (conductor_ends.cpp).
    /// What is found out beforehand about the next end.
    struct Foreseen {
        std::int32_t round = 0;
        std::vector<AdapterId> left;    ///< to train behind it
        std::shared_future<bool> pays;  ///< that they go on in another deployment
    };
    bool foresees_ends() const;
    void foresee_end(std::int32_t round);
    bool goes_on_behind(std::int32_t round);
    bool has_texts(AdapterId adapter) const;
    int texts_waiting(std::int32_t round) const;
    bool texts_are_due(std::int32_t round) const;

    // Who trains changes while the stream goes on (conductor_changes.cpp).
    bool changes_in_stream() const;
    bool takes_orders_in_stream() const;
    bool orders_need_drain(std::int32_t round);
    std::optional<StreamChange> change_stream(const Progress& planned);
    void stop_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change);
    bool admit_in_stream(const Progress& planned, StreamChange& change);
    void take_memory_of_ended(StreamChange& change);
    bool may_begin_in_stream(AdapterId adapter) const;
    void begin_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change);

    // Trials at rungs while the stream goes on (conductor_rungs.cpp).
    std::int32_t steps_before(AdapterId adapter, std::int32_t round) const;
    bool comes_to_rung(AdapterId adapter, std::int32_t round) const;
    bool ends_before_rungs(AdapterId adapter) const;
    bool is_at_rung(AdapterId adapter, std::int32_t step) const;
    bool rungs_need_drain(std::int32_t round) const;
    bool awaits_rungs(std::int32_t round) const;
    void judge_in_stream(std::int32_t round);
    bool waits_for_files(AdapterId adapter) const;
    void record_trials(bool news);
    AdapterTable table_before(const Progress& planned, const StreamChange& change) const;
    void pause(AdapterId adapter, const Progress& planned, StreamChange& change);
    bool is_resident_still(AdapterId adapter) const;

    // Adapters that are added while the stream goes on (conductor_growth.cpp).
    struct Additions {
        std::vector<InboxFile> files;       ///< good, as far as this rank knows
        std::vector<std::string> problems;  ///< per file, that others have told; "" = none
        int verdicts_left = 0;              ///< of other ranks
        bool answers_later = false;         ///< those come behind the window under way
    };
    void look_for_additions();
    void take_verdict(const AdditionsVerdict& verdict);
    bool waits_to_grow() const;
    bool awaits_verdicts() const { return additions_ && additions_->verdicts_left > 0; }
    bool grow();
    bool take_addition(const InboxFile& file, std::string problem);

    // Evaluations that decide (conductor_best.cpp).
    struct Best {
        AdapterId adapter{};
        AdapterState state;  ///< as it was found: best_step, best_eval_loss
    };
    bool trains_beyond(AdapterId adapter, std::int32_t round) const;
    std::int32_t evaluations_pending(AdapterId adapter, std::int32_t round) const;
    bool evaluations_need_drain(std::int32_t round) const;
    bool goes_on_undrained() const;
    bool may_end_at(AdapterId adapter, std::int32_t round) const;
    std::vector<AdapterId> deciding(const Progress& planned) const;
    bool awaits_evaluations(std::int32_t round) const;
    void end_stopped_early(const Progress& planned, StreamChange& change);
    void keep_evaluated(const Progress& planned, StreamChange& change) const;
    void store_kept(const AdapterAtStep& which, AdapterParts::ByRank values);
    bool is_best(AdapterId adapter, std::int32_t step) const;
    bool has_best_to_write(AdapterId adapter) const;
    void judge_evaluations(const std::vector<AdapterId>& adapters);
    void judge_evaluation(AdapterId adapter, std::int32_t step);
    void write_bests(bool pipeline_is_empty);
    bool saving_has(const Best& best) const;
    void write_best(const Best& best);

    // A checkpoint while the stream goes on (conductor_saving.cpp).
    bool is_held(AdapterId adapter) const;
    std::vector<AdapterId> adapters_held() const;
    bool saves_in_stream() const;
    bool checkpoint_due_at(std::int32_t round) const;
    bool can_save_at(std::int32_t round) const;
    std::vector<AdapterId> begin_checkpoint(std::int32_t round);
    StateAtRound::Goal goal_at(std::int32_t round, AdapterId adapter) const;
    void store_part(const PartKey& key, AdapterParts::ByRank values);
    bool ends_are_settled() const;
    bool bests_are_written() const;
    void go_on_saving();
    void finish_saving();
    void export_in_background(AdapterId adapter, AdapterParts::ByRank values);
    void take_exported();
    void finish_exports();
    void end_saving();

    // Between streams (conductor_between.cpp).
    void refer_newcomers();
    void refer(AdapterId adapter);
    void evaluate_newcomers();
    bool awaits_first_evaluation(AdapterId adapter) const;
    void tell_of_start(AdapterId first, const std::vector<AdapterId>& alike) const;
    const AdapterState* recalled_start(AdapterId adapter) const;
    bool knows_start(AdapterId adapter) const;
    void take_start(AdapterId adapter);
    void end_adapters(const std::vector<AdapterId>& trained);
    void evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples = 0);
    void note_evaluation_of(const EvalResult& result, bool is_shared = false);
    std::vector<NamedTensor> gather(AdapterId adapter);
    void export_adapter(AdapterId adapter);
    void write_texts(const std::vector<AdapterId>& trained);
    bool regular_evaluation() const;
    bool checkpoint_due_by_time() const;
    std::string reason_to_stop();
    bool redeploys();
    void save();
    void release(const std::vector<AdapterId>& saved);

    // Trials of a sweep (conductor_trials.cpp).
    void recall_trials();
    void search_trials(const std::vector<AdapterId>& trained);
    void evaluate_at_rungs(const std::vector<AdapterId>& trials);
    void note_ends(const std::vector<AdapterId>& trials);
    bool budget_spent() const;
    void end_by_budget();
    void release_trials();
    void wait_for_trials();

    // On a worker (conductor_worker.cpp).
    ExitCode work();
    void train_given();
    void rest();
    void ask_for_adapters(const AdapterTable& table);
    int places(const AdapterTable& table) const;
    void report_trained(const std::vector<AdapterId>& trained);
    void tell_ends();
    void tell_ends(const std::vector<AdapterId>& ended);
    void save_and_tell();
    void tell_saved(const StateAtRound& saved, double seconds);
    void stop_working(const std::string& why);
    void obey_desk();
    void obey(const DeskOrders& orders);
    void take_news(const AdapterNews& news);
    void take_over(const GivenAdapter& given);
    void give_back(const std::vector<ReturnedAdapter>& returned);
    std::string store_for_others(const std::vector<AdapterId>& adapters);
    void grow_by(const InboxFile& file);
    bool desk_wants_drain() const;
    bool has_verdicts(const DeskOrders& orders) const;

    // On a worker, while its stream goes on (conductor_worker_stream.cpp).
    void obey_in_stream();
    void park_in_stream(const Progress& planned, StreamChange& change);
    void tell_parked();
    void tell_ends_in_stream();
    bool has(AdapterId adapter) const { return adapters_[adapter].held; }

    // Admission and orders (conductor_orders.cpp).
    void admit_adapters();
    std::vector<AdapterId> choose_adapters(AdapterTable& table) const;
    bool finished();
    bool are_looked_at(const InboxFile& file) const;
    bool orders_wait();
    void obey_orders();
    void add_adapters(const InboxFile& file);
    void begin_added(const InboxFile& file, const JobTail& tail);
    std::optional<AdapterId> take_stop(const std::string& name);
    void stop_adapter(AdapterId adapter);
    void forget_obeyed(const std::set<std::string>& names);

    const TrainerParts& parts_;
    Performer& performer_;
    DirectiveChannel& channel_;
    RunClock clock_;
    AdapterTable adapters_;
    TrialSearch search_;
    SweepRecords sweep_;
    Journal journal_;
    StreamTrainer stream_;
    std::chrono::steady_clock::time_point last_checkpoint_;
    bool set_back_ = false;
    int signal_ = 0;  ///< the first that came to any rank
    std::string stop_reason_;
    bool goes_on_ = false;

    /// A checkpoint that is being written.
    struct Saving {
        Saving(const TrainerParts& parts, std::int32_t round,
               const std::vector<StateAtRound::Goal>& goals, std::size_t parts_to_come)
            : state(round, goals),
              files(parts.job, parts.plan, parts.identity, round, parts.checkpoints),
              parts_left(parts_to_come) {}

        StateAtRound state;
        BackgroundCheckpoint files;
        std::size_t parts_left;  ///< that are to come
        bool completing = false;
        std::set<std::string> stops;  ///< that it has
    };
    std::optional<Saving> saving_;
    struct Exporting {
        AdapterId adapter{};
        std::future<void> files;
    };
    std::vector<Exporting> exporting_;
    bool saves_in_stream_ = false;  ///< this stream
    struct Begin {
        std::int32_t round = 0;
        std::int32_t steps = 0;  ///< so many it had
    };
    std::map<AdapterId, Begin> begun_;  ///< in the stream
    /// In the stream, by order, by an evaluation or for now: steps it has then.
    std::map<AdapterId, std::int32_t> last_steps_;
    std::int32_t fixed_end_ = 0;          ///< a round: of the stream, whoever trains
    std::optional<Foreseen> foreseen_;    ///< none: ends are not waited for
    std::optional<double> text_seconds_;  ///< that an adapter's texts took last
    std::vector<AdapterId> saved_ended_;  ///< had ended at the checkpoint of the stream

    std::set<ReferenceId> referred_;               ///< whose losses are known
    std::map<StartKey, EvalResult> starts_;        ///< evaluations before the first step
    std::vector<EvalResult> evaluations_;          ///< of the stream, not noted yet
    std::map<AdapterId, std::int32_t> evaluated_;  ///< step of the last one in a stream
    std::vector<Best> bests_;                      ///< whose files are not written yet
    /// In the stream, parameters that may be or are the best.
    std::map<AdapterAtStep, AdapterParts::ByRank> kept_;
    std::set<AdapterId> exported_;  ///< in the stream, or on the way
    std::set<AdapterId> written_;   ///< of them: its files are
    std::set<AdapterId> stepped_;   ///< in the stream: all stages have its last step
    std::vector<AdapterId> admitted_;
    std::optional<Inbox> inbox_;  ///< once training begins
    Inbox::Orders orders_;
    std::optional<Additions> additions_;  ///< that all ranks look at
    std::set<std::string> stopping_;      ///< adapters whose stop files are obeyed

    // On a worker.
    std::set<AdapterId> told_;    ///< ended ones that the desk knows of
    std::set<AdapterId> parked_;  ///< in the stream, at rungs; the desk does not know yet
    int places_ = 0;              ///< that the desk was told of
    int moves_ = 0;               ///< in which it has given adapters back
    std::string stop_ordered_;    ///< by the desk: why
    bool resting_ = false;        ///< it has saved and trains no more
    std::optional<ExitCode> over_;
};

}  // namespace loratrain
