#pragma once

#include <future>
#include <optional>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Decides whether the run continues in another deployment after an adapter has ended
/// (RunParts::redeploys). The answer is computed before the end, while adapters train, so that the
/// stream goes on if no other deployment pays.
class RedeployService : public Service {
  public:
    explicit RedeployService(Worker& worker) : worker_(worker) {}

    void begin_stream() override { foresee_end(worker_.adapters.round()); }
    /// True before an end after which another deployment may pay.
    bool needs_drain(std::int32_t round) override;
    std::int32_t last_round(const Progress& planned) const override;
    std::int32_t next_event(const Progress& planned) const override;

    /// The stream has ended: waits until no thread reads the job, which orders may change now.
    void finish();
    /// With an empty pipeline: true if another deployment pays for the remaining adapters. Asked
    /// once for the same adapters. If true, the next start asks again and gets the same answer,
    /// even if this one is killed before.
    bool redeploys();

  private:
    /// The next end of an adapter.
    struct Foreseen {
        std::int32_t round = 0;
        std::vector<AdapterId> left;    ///< adapters that train after it
        std::shared_future<bool> pays;  ///< another deployment pays for them
    };

    void foresee_end(std::int32_t round);

    Worker& worker_;
    std::optional<Foreseen> foreseen_;  ///< none: no end is waited for
};

}  // namespace loratrain
