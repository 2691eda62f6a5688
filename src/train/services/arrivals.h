#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/rollout_folder.h"
#include "train/worker.h"

namespace loratrain {

/// Rollouts that come into folders while the job runs (RolloutFolder, DatasetJob::grows). An
/// adapter whose next batch is not there waits outside the stream (admission.h), and the others go
/// on. It ends at max_steps, or where its folder has END and no next file; a file that cannot be
/// used fails it, and a later start of the run tries it anew. Rank 0 looks; all ranks get the
/// samples of each batch (AddSamples). AdapterState says where a start goes on.
class ArrivalService : public Service {
  public:
    explicit ArrivalService(Worker& worker) : worker_(worker) {}

    void on_step(const BatchResult& result) override;
    bool needs_drain(std::int32_t round) override;
    void look_for_orders() override { look(); }
    bool delays_planning() const override { return !found_.empty(); }
    bool looks_often() const override;
    /// Takes what was found.
    bool grow() override;

    /// A file has been written now: the next look comes at once.
    void look_again() { next_look_ = {}; }

    /// With an empty pipeline: looks, takes, and ends adapters of which nothing more comes.
    void look_now();

    /// While no window is planned: gives an adapter, whose dataset grows, the batch of the first
    /// step that has none, on all ranks.
    void add(AdapterId adapter, RolloutFolder::Batch batch);
    /// Arrivals::Batch::stale; none where that is not asked for.
    std::optional<std::int32_t> stale_before(const BatchPlan& batch) const;

  private:
    using Clock = std::chrono::steady_clock;

    /// Where an adapter's batches come from.
    struct Source {
        RolloutFolder folder;
        Clock::time_point since = Clock::now();  ///< the last batch
        std::string problem{};                   ///< of the file that follows; "" = none
        bool tokenizer_checked = false;
        bool trouble_told = false;
        bool waiting_told = false;
        bool stale_told = false;
    };

    Arrivals* arrivals_of(AdapterId adapter) const;
    std::vector<AdapterId> growing() const;
    Source& source_of(AdapterId adapter);
    void look();
    Clock::duration look(AdapterId adapter, Clock::time_point until);
    /// False if there is none.
    bool take_next(AdapterId adapter, Source& source);
    void tell(AdapterId adapter, Source& source) const;
    bool waits(AdapterId adapter) const;
    /// It waits for what does not come.
    bool is_over(AdapterId adapter) const;
    void end(AdapterId adapter);

    Worker& worker_;
    std::map<AdapterId, Source> sources_;
    std::vector<std::pair<AdapterId, RolloutFolder::Batch>> found_;
    Clock::time_point next_look_{};
};

}  // namespace loratrain
