#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "plan/plan.h"
#include "train/adapter_parts.h"
#include "train/orders/inbox.h"

namespace loratrain {

/// A window of training, the first or the next of its stream.
struct TrainWindow {
    JointWindow window;
};

/// A forward-only window over eval samples.
struct EvaluateWindow {
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

/// A checkpoint of what is trained so far.
struct SaveCheckpoint {};

/// A checkpoint of these adapters alone, which another worker goes on with.
struct StoreAdapters {
    std::vector<AdapterId> adapters;
};

/// The adapter's parameters go to rank 0, which exports them or keeps them as its best.
struct GatherAdapter {
    AdapterId adapter{};
};

/// The same while others train: the adapter has ended, ranks send what they have of it and go on.
struct SendAdapter {
    AdapterId adapter{};
};

/// A checkpoint while training goes on: of these adapters, ranks copy the state as soon as they
/// have taken the steps that the windows before this directive have, send it and go on.
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

/// The run gets the adapters that an inbox file adds; none where a rank refuses it.
struct AddAdapters {
    InboxFile file;
};

/// Between two windows of a stream: ranks check what inbox files would add (RunGrowth::check), keep
/// it and tell what is wrong (AdditionsVerdict). The run does not change.
struct CheckAdditions {
    std::vector<InboxFile> files;
};

/// The first of them that is kept belongs to the run from now on.
struct TakeAddition {
    std::string plan;  ///< with it, as text
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

/// What rank 0 decides (conductor.h) and every rank performs, in the same order (performer.h).
using Directive =
    std::variant<TrainWindow, EvaluateWindow, ReferWindow, KnownReferences, SaveCheckpoint,
                 StoreAdapters, GatherAdapter, SendAdapter, CopyStates, KeepParameters,
                 AdmitAdapters, ReleaseAdapter, LoadAdapter, AddAdapters, CheckAdditions,
                 TakeAddition, DropAdditions, GenerateTexts, Finish>;

/// The one text form, for the way to the other ranks: a line "<kind> <numbers>", then for a window
/// its text (plan/text/window_text.h), for a checkpoint its directory, for inbox files their
/// paths and texts as they are, the numbers being the bytes of each, but of a last text. Reading
/// what was written gives the same value; any other text is an Error that shows its first line.
std::string to_text(const Directive& directive);
Directive directive_from_text(const std::string& text);

}  // namespace loratrain
