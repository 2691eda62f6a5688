#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "base/threads.h"
#include "io/safetensors.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Writes and checks directories of adapters, at their end and at steps before.

/// The log has a line per export of a job that has no more adapters than this, else their number
/// now and then (ExportService).
inline constexpr std::size_t most_logged_exports = 64;

/// Writes adapters/<name>/ of an adapter that has ended: a PEFT directory with a file DONE. Root
/// only.
void write_export(const Job& job, const ModelSpec& model, const AdapterState& state,
                  AdapterId adapter, std::vector<NamedTensor> tensors);

/// Checks the exports of a run that continues from directory `checkpoint`. A weights file that
/// differs from the checkpoint, a config that does not fit, or a missing file is a warning, and the
/// export is written again. Root only.
void mend_exports(const Job& job, const ModelSpec& model, const RunState& state,
                  const std::string& checkpoint);

/// exports/<name>/step-<n>/: an adapter after n of its steps (export.every_steps), for programs
/// that write texts with it while it trains. A PEFT directory with a file READY. A directory of
/// that name is whole at every moment at which it is there. Root only.

/// Writes the directory, or replaces it as a whole. Then removes all but the newest export.keep of
/// the adapter.
void write_step_export(const Job& job, const ModelSpec& model, AdapterId adapter, std::int32_t step,
                       std::vector<NamedTensor> tensors);

/// The directory is there.
bool has_step_export(const Job& job, AdapterId adapter, std::int32_t step);

/// Removes what a start before has left of steps behind `state`, which are trained again, and
/// directories that it did not complete.
void restore_step_exports(const Job& job, const RunState& state);

/// Writes directories on threads of their own, while rank 0 goes on.
class BackgroundExports {
  public:
    void begin(AdapterId adapter, Beside beside, std::function<void()> write);
    /// Adapters whose files have been written since. Throws what writing threw, as this adapter's
    /// activity.
    std::vector<AdapterId> take_written();
    void wait() const;
    bool is_writing() const { return !writing_.empty(); }

  private:
    struct Writing {
        AdapterId adapter{};
        std::future<void> files;
    };
    std::vector<Writing> writing_;
};

}  // namespace loratrain
