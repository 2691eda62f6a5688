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
#include "io/tokens/token_file.h"
#include "model/objective/reference_losses.h"
#include "plan/plan.h"
#include "train/adapter_parts.h"
#include "train/orders/inbox.h"
#include "train/text_order.h"

namespace loratrain {

/// Train a window: the first or the next of a stream. It may have evaluations only.
struct TrainWindow {
    JointWindow window;
};

/// Compute the reference losses of an adapter's dataset (ReferenceLosses) with a forward-only
/// window over all its samples.
struct ReferWindow {
    JointWindow window;
};

/// Take reference losses that an earlier start of the run has computed.
struct KnownReferences {
    AdapterId adapter{};
    ReferenceValues losses;
};

/// Send rank 0 the parameters of an adapter that no later window trains, and go on.
struct SendAdapter {
    AdapterId adapter{};
};

/// Copy the state that a checkpoint keeps of these adapters, each as soon as it has taken its steps
/// in the windows before this command. Send the copies to rank 0 and go on.
struct CopyStates {
    std::vector<AdapterId> adapters;
};

/// As CopyStates, but parameters only: of adapters that are evaluated, where rank 0 learns later
/// whether they are the best, and of those that are exported while they train.
struct KeepParameters {
    std::vector<AdapterAtStep> adapters;  ///< with their steps at the end of those windows
};

/// Keep these adapters in backend memory and no others. Nothing of the others is in flight.
struct AdmitAdapters {
    std::vector<AdapterId> adapters;
};

/// Free the memory of an adapter that has ended, is exported and is in a checkpoint.
struct ReleaseAdapter {
    AdapterId adapter{};
};

/// Load an adapter that has begun from the checkpoint in `directory`.
struct LoadAdapter {
    AdapterId adapter{};
    std::string directory;
};

/// Check what inbox files would add (RunGrowth::check), keep it and report problems
/// (AdditionsReport). The run does not change.
struct CheckAdditions {
    std::vector<InboxFile> files;
};

/// Add the first file that CheckAdditions has kept to the run.
struct TakeAddition {
    std::string plan;  ///< the plan with the addition, as bytes (base/wire.h)
};

/// Forget the files that are still kept.
struct DropAdditions {};

/// Add samples to a dataset that grows, and forget those that are trained. They travel in the
/// command: only rank 0 reads their files.
struct AddSamples {
    DatasetId dataset{};
    std::int64_t first = 0;  ///< number of the first
    std::vector<TokenSample> samples;
    std::int64_t first_needed = 0;  ///< no later window has a sample before this one
};

/// Write texts with an adapter that has ended and is resident (generation.h).
struct GenerateTexts {
    AdapterId adapter{};
};

/// Write texts with resident adapters (generation.h).
struct WriteTexts {
    std::vector<TextOrder> orders;
};

/// The last command.
struct Finish {
    ExitCode code = ExitCode::done;
    bool goes_on = false;  ///< the run continues at once in another deployment
};

/// Commands of a worker: rank 0 gives them (worker_loop.h), every rank executes them in the same
/// order (executor.h).
using WorkerCommand =
    std::variant<TrainWindow, ReferWindow, KnownReferences, SendAdapter, CopyStates, KeepParameters,
                 AdmitAdapters, ReleaseAdapter, LoadAdapter, CheckAdditions, TakeAddition,
                 DropAdditions, AddSamples, GenerateTexts, WriteTexts, Finish>;

/// The bytes that travel to other ranks (base/wire.h). Reading them gives the same value; Error for
/// any other bytes.
std::string to_bytes(const WorkerCommand& command);
WorkerCommand command_from_bytes(std::string_view bytes);

/// Receives rank 0's commands on another rank. Reading a window takes a while, so a command that
/// arrives while the window before trains is read on a thread of its own.
class CommandReader {
  public:
    /// The channel outlives it.
    explicit CommandReader(CommandChannel& channel) : channel_(channel) {}

    /// Takes commands that have arrived. Does not wait. Call it often.
    void look();
    /// Waits for the next command and calls `meanwhile` often. Error if its bytes are damaged.
    WorkerCommand next(const std::function<void()>& meanwhile);

  private:
    void read(std::string text);

    CommandChannel& channel_;
    std::deque<std::future<WorkerCommand>> taken_;  ///< in order
};

}  // namespace loratrain
