#pragma once

#include <functional>
#include <vector>

#include "train/directive.h"
#include "train/trainer_parts.h"

namespace loratrain {

/// Does on one rank what the conductor decides: a function per kind of directive, each collective
/// over the ranks, and what it returns only rank 0 gets. Rank 0 calls them itself as it posts a
/// directive; the others get the directive and perform() it.
class Performer {
  public:
    using Meanwhile = std::function<void()>;

    /// `parts` outlive it.
    explicit Performer(const TrainerParts& parts) : parts_(parts) {}

    /// Other ranks. `meanwhile` is called now and then while a window trains.
    void perform(const Directive& directive, const Meanwhile& meanwhile);

    /// `hooks` as PipelineRunner::run: those of a stream's first window are the stream's.
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    /// Sums per batch of the window.
    std::vector<EvalSums> evaluate(const JointWindow& window, const Meanwhile& meanwhile);
    /// `state` is rank 0's.
    void save(const RunState& state);
    /// All stages' tensors of an adapter.
    std::vector<NamedTensor> gather(AdapterId adapter);
    void admit(const std::vector<AdapterId>& adapters);
    void release(AdapterId adapter);
    /// InputError on all ranks, and nothing has changed, where the file is refused (grow_run.h);
    /// rank 0's `accept` may refuse it too.
    void add(const InboxFile& file, const std::function<void()>& accept);

  private:
    const Window& own_part(const JointWindow& window) const;

    const TrainerParts& parts_;
};

}  // namespace loratrain
