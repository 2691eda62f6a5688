#pragma once

#include <future>
#include <optional>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Whether the run goes on in another deployment for the adapters that are left behind an end
/// (RunParts::redeploys). It is found out before the end, while others train: the stream goes on
/// behind an end where no other deployment pays.
class RedeployService : public Service {
  public:
    explicit RedeployService(Worker& worker) : worker_(worker) {}

    void begin_stream() override { foresee_end(worker_.adapters.round()); }
    /// All that are left behind an end may have to go on in another deployment.
    bool needs_drain(std::int32_t round) override;
    std::int32_t last_round(const Progress& planned) const override;
    std::int32_t next_event(const Progress& planned) const override;

    /// The stream has ended: orders may change the job, which nothing looks at any more.
    void finish();
    /// With an empty pipeline: asked once for the adapters that are left. Where it is so, the next
    /// start asks again and comes to the same, whether this one gets to it or is killed before.
    bool redeploys();

  private:
    /// What is found out beforehand about the next end.
    struct Foreseen {
        std::int32_t round = 0;
        std::vector<AdapterId> left;    ///< to train behind it
        std::shared_future<bool> pays;  ///< that they go on in another deployment
    };

    void foresee_end(std::int32_t round);

    Worker& worker_;
    std::optional<Foreseen> foreseen_;  ///< none: ends are not waited for
};

}  // namespace loratrain
