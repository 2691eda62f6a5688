#pragma once

#include "train/worker.h"

namespace loratrain {

/// Takes steps into the adapter table and the journal, and decides how adapters end. A gradient
/// that is not finite changes no parameters (backend/ops/optimizer.h) and is counted. An adapter
/// with bad_steps_allowed of them in a row (train/checkpoint/run_state.h), or whose last loss is
/// not finite, fails: the stream ends once, and all others go on in the next.
class StepService : public Service {
  public:
    explicit StepService(Worker& worker) : worker_(worker) {}

    /// An adapter whose gradients are not finite again and again has to be given up.
    bool needs_drain(std::int32_t round) override;
    void on_step(const BatchResult& result) override;

    /// Sets the status of an adapter that trains by its last step: failed, done, stopped by order,
    /// or as it was. Of those that fail, behind the stream (worker_loop.h).
    void decide_end(AdapterId adapter);

  private:
    Worker& worker_;
};

}  // namespace loratrain
