#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/rewards/reward_program.h"
#include "train/rewards/rollout_file.h"
#include "train/worker.h"

namespace loratrain {

/// What adapters with rewards train on. An adapter whose next batch is not there writes texts: with
/// an empty pipeline, those of all such adapters together. Its reward program is asked while others
/// train. Its answers and the texts become a file in the folder of its dataset, which
/// ArrivalService takes like any that comes from outside. So a start that finds the file trains on
/// it, and asks nobody again. A program that fails, and logits that are not finite, fail the
/// adapter. Rank 0 only.
class RolloutService : public Service {
  public:
    explicit RolloutService(Worker& worker);

    /// True before a round in which an adapter has to write.
    bool needs_drain(std::int32_t round) override;
    void begin_stream() override { note_files(); }
    void look_for_orders() override { take_answers(); }
    bool looks_often() const override { return !asked_.empty(); }
    void go_on() override;

    /// With an empty pipeline: adapters that have no batch write, unless the run has to stop. Waits
    /// for the programs a little; turns without work ask again.
    void write();

  private:
    using Clock = std::chrono::steady_clock;

    /// A step whose texts a program has.
    struct Asked {
        std::int32_t step = 0;
        RewardProgram* program = nullptr;
        RewardProgram::Ticket ticket = 0;
        std::vector<GeneratedText> texts;
        double sample_seconds = 0.0;  ///< of the texts of all adapters that wrote with it
        Clock::time_point since{};
    };

    bool lacks_batch(AdapterId adapter, std::int32_t steps) const;
    std::vector<AdapterId> writers() const;
    void write_together(const std::vector<AdapterId>& adapters);
    std::vector<TextOrder> orders_of(AdapterId adapter);
    void ask(AdapterId adapter, std::vector<GeneratedText> texts, double sample_seconds);
    void take_answers();
    void take(AdapterId adapter, const Asked& asked, const RewardProgram::Answers& answers);
    void wait_for_answers();
    void let_fail();
    void note_files();
    const std::string& folder_of(AdapterId adapter) const;
    RewardProgram& program_of(AdapterId adapter);

    Worker& worker_;
    std::vector<AdapterId> own_;  ///< adapters with rewards, which no inbox adds
    std::map<std::string, std::unique_ptr<RewardProgram>> programs_;  ///< by command
    std::map<AdapterId, Asked> asked_;
    std::map<AdapterId, std::string> failed_;  ///< in a stream: why
    std::map<AdapterId, std::int32_t> noted_;  ///< steps whose means the journal has
    Clock::time_point next_poll_{};
};

}  // namespace loratrain
