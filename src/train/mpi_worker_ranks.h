#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "comm/command_channel.h"
#include "train/executor.h"
#include "train/worker_ranks.h"

namespace loratrain {

/// The ranks of a worker over MPI. Rank 0 only.
class MpiWorkerRanks : public WorkerRanks {
  public:
    /// The arguments outlive it.
    MpiWorkerRanks(const TrainerParts& parts, Executor& executor, CommandChannel& channel);
    /// `work` is called often during rank 0's long work.
    void meanwhile(std::function<void()> work) { meanwhile_ = std::move(work); }

    int count() const override { return parts_.mpi.size(); }
    double share_of_host() const override;
    Residence residence(AdapterId adapter) const override {
        return parts_.run.stage().bank().residence(adapter);
    }

    void order(const WorkerCommand& command) override;
    void perform_ordered() override;
    void order_window(const PlannedWindow& window) override;
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks) override;
    std::vector<GeneratedText> generate(AdapterId adapter) override;
    std::vector<GeneratedText> write_texts(const std::vector<TextOrder>& orders) override;
    void finish() override { channel_.finish(); }

    void progress() override { channel_.progress(); }
    void go_on_reading() override { executor_.go_on_reading(); }
    std::optional<Report> report() override;
    int reported_signal() override { return channel_.reported(); }

    AdapterBank::Counters copied_counters(AdapterId adapter) const override {
        return executor_.copied_counters(adapter);
    }
    std::vector<NamedTensor> join(AdapterId adapter,
                                  const AdapterParts::ByRank& all) const override {
        return executor_.join(adapter, all);
    }
    ReferenceValues references(const ReferenceId& reference) const override {
        return executor_.references().of(reference);
    }
    std::string plan_with_addition() const override { return executor_.plan_with_addition(); }

  private:
    const TrainerParts& parts_;
    Executor& executor_;
    CommandChannel& channel_;
    std::function<void()> meanwhile_;
    /// A command that rank 0 has not executed, and the windows ordered before it.
    struct Ordered {
        WorkerCommand command;
        std::int64_t windows = 0;
    };
    bool is_due(const Ordered& next) const { return next.windows <= trained_; }

    std::deque<Ordered> ordered_;
    std::deque<std::int64_t>
        windows_;               ///< that rank 0 has not trained: their numbers on the channel
    std::int64_t trained_ = 0;  ///< windows that rank 0 has begun to train
    std::int64_t window_ = 0;   ///< number of the last of them
    std::deque<Report> own_;    ///< reports of rank 0 itself
};

}  // namespace loratrain
