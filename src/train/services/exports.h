#pragma once

#include <future>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Exports of adapters that have ended, adapters/<name>/. While the stream goes on their tensors
/// are put together and written in the background, but where others wait for the files.
class ExportService : public Service {
  public:
    explicit ExportService(Worker& worker) : worker_(worker) {}

    void begin_stream() override { in_stream_ = true; }
    /// Asks ranks for the parameters of those that have ended, once their results have come.
    void before_window(std::int32_t round, const std::vector<AdapterId>& stepped) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;

    /// With an empty pipeline; unless it was exported before.
    void write_now(AdapterId adapter);
    /// Takes note of files that are written.
    void take_written();
    /// The stream has ended: waits until all are written.
    void finish();
    bool is_writing() const { return !writing_.empty(); }
    /// One that has ended waits for the results of its last steps, or for files in the run
    /// directory.
    bool waits_for_files(AdapterId adapter) const;

  private:
    struct Writing {
        AdapterId adapter{};
        std::future<void> files;
    };

    std::vector<AdapterId> complete(const std::vector<AdapterId>& stepped);
    void begin(AdapterId adapter);
    void write(AdapterId adapter, const AdapterParts::ByRank& values);
    void write_in_background(AdapterId adapter, AdapterParts::ByRank values);

    Worker& worker_;
    bool in_stream_ = false;
    std::vector<Writing> writing_;
};

}  // namespace loratrain
