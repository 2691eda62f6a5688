#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "train/records/exports.h"
#include "train/worker.h"

namespace loratrain {

/// Exports adapters that have ended to adapters/<name>/. During a stream, tensors are joined and
/// written on a thread of their own unless something waits for the files.
class ExportService : public Service {
  public:
    explicit ExportService(Worker& worker) : worker_(worker) {}

    void begin_stream() override { in_stream_ = true; }
    /// Asks ranks for the parameters of adapters that have ended, once their results have come.
    void before_window(std::int32_t round, const std::vector<AdapterId>& stepped) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;

    /// With an empty pipeline: exports the adapter, unless that is done.
    void write_now(AdapterId adapter);
    /// Notes exports whose files are written.
    void take_written();
    /// The stream has ended: waits until all exports are written.
    void finish();
    /// Logs how many exports were written since the last line, if adapters have no line each.
    void log_written();
    bool is_writing() const { return writing_.is_writing(); }
    /// The adapter has ended and waits for results of its last steps or for its files.
    bool waits_for_files(AdapterId adapter) const;

  private:
    std::vector<AdapterId> complete(const std::vector<AdapterId>& stepped);
    void begin(AdapterId adapter);
    void write(AdapterId adapter, const AdapterParts::ByRank& values);
    void write_in_background(AdapterId adapter, AdapterParts::ByRank values);
    void note_written(AdapterId adapter);

    Worker& worker_;
    bool in_stream_ = false;
    BackgroundExports writing_;
    std::size_t unlogged_ = 0;  ///< exports that no line of the log counts yet
    std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

}  // namespace loratrain
