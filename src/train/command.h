#pragma once

#include <deque>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "comm/command_channel.h"
#include "plan/plan.h"
#include "train/adapter_parts.h"
#include "train/orders/inbox.h"

namespace loratrain {

/// A window, the first or the next of its stream; it may have evaluations alone.
struct TrainWindow {
    JointWindow window;
};

/// A forward-only window of an adapter's reference over all samples of its dataset
/// (ReferenceLosses).
struct ReferWindow {
    JointWindow window;
};

/// The same as an earlier start of the run found it.
struct KnownReferences {
    AdapterId adapter{};
    std::vector<double> losses;
};

/// Ranks send rank 0 the parameters that they have of the adapter, which no window trains any more,
/// and go on.
struct SendAdapter {
    AdapterId adapter{};
};

/// Of these adapters, ranks copy what a checkpoint has as soon as they have taken the steps that
/// the windows before this command have, send it and go on.
struct CopyStates {
    std::vector<AdapterId> adapters;
};

/// The same of the parameters of these alone, which have been evaluated: whether they are the best
/// is known later.
struct KeepParameters {
    std::vector<AdapterAtStep> adapters;  ///< with the steps that those windows come to
};

/// From now on these are in backend memory, and no others; nothing of those is under way.
struct AdmitAdapters {
    std::vector<AdapterId> adapters;
};

/// The adapter has ended, is exported and in a checkpoint: its memory is given back.
struct ReleaseAdapter {
    AdapterId adapter{};
};

/// The adapter, which has begun, goes on from a checkpoint in this directory.
struct LoadAdapter {
    AdapterId adapter{};
    std::string directory;
};

/// Ranks check what inbox files would add (RunGrowth::check), keep it and tell what is wrong
/// (AdditionsReport). The run does not change.
struct CheckAdditions {
    std::vector<InboxFile> files;
};

/// The first of them that is kept belongs to the run from now on.
struct TakeAddition {
    std::string plan;  ///< with it, as bytes (base/wire.h)
};

/// What is still kept of them is not taken.
struct DropAdditions {};

/// Writes texts with an adapter that has ended and is resident (generation.h).
struct GenerateTexts {
    AdapterId adapter{};
};

/// The last one.
struct Finish {
    ExitCode code = ExitCode::done;
    bool goes_on = false;  ///< in another deployment, at once
};

/// What rank 0 orders (worker_loop.h) and every rank performs, in the same order (executor.h).
using WorkerCommand =
    std::variant<TrainWindow, ReferWindow, KnownReferences, SendAdapter, CopyStates, KeepParameters,
                 AdmitAdapters, ReleaseAdapter, LoadAdapter, CheckAdditions, TakeAddition,
                 DropAdditions, GenerateTexts, Finish>;

/// For the way to the other ranks (base/wire.h). Reading what was written gives the same value; any
/// other bytes are an Error.
std::string to_bytes(const WorkerCommand& command);
WorkerCommand command_from_bytes(std::string_view bytes);

/// Rank 0's commands on another rank. The text of a window takes a while to read: one that
/// arrives while the window before trains is read in the background.
class CommandReader {
  public:
    /// The channel outlives it.
    explicit CommandReader(CommandChannel& channel) : channel_(channel) {}

    /// Takes up what has arrived; to be called now and then. Does not wait.
    void look();
    /// Waits for the next one; calls `meanwhile` now and then. Error where its text is damaged.
    WorkerCommand next(const std::function<void()>& meanwhile);

  private:
    void read(std::string text);

    CommandChannel& channel_;
    std::deque<std::future<WorkerCommand>> taken_;  ///< in order
};

}  // namespace loratrain
