#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "plan/plan.h"

namespace loratrain {

/// A microbatch's rows as host arrays, samples packed in the order of its segments. A sample that
/// is shorter than its SampleRef says (packing `bucketed`) is padded at its end: id 0, target -100,
/// positions go on; attention is causal, so pads change nothing that is trained.
struct PackedBatch {
    std::vector<std::int32_t> token_ids;   ///< [T]; empty when tokens were not asked for
    std::vector<std::int32_t> targets;     ///< [T] already shifted: label of the next token of the
                                           ///< same sample, -100 = none; empty likewise
    std::vector<float> weights;            ///< [T] of the targets; empty: 1 each
    std::vector<std::int32_t> positions;   ///< [T]
    std::vector<std::int32_t> sample_ids;  ///< [T] index in the dataset
    std::vector<std::int32_t> offsets;     ///< [samples + 1]
};

/// Layout only (positions, sample ids, offsets): what stages without embedding and head need.
PackedBatch pack_layout(const Microbatch& microbatch);

/// Which file of each dataset a window reads.
struct DatasetFiles {
    std::vector<Dataset> train;                  ///< per DatasetId
    std::vector<std::unique_ptr<Dataset>> eval;  ///< per DatasetId, null = none
};

/// Dataset of each AdapterId.
std::vector<DatasetId> datasets_of_adapters(const Job& job);

/// Reads the microbatches of windows ahead of their use on one background thread (at most `depth`
/// ahead). next() returns them in order; errors of the thread are rethrown there.
class Loader {
  public:
    /// `adapters`: dataset of each AdapterId. `with_tokens` = this rank has embedding or head.
    Loader(const DatasetFiles& files, std::span<const DatasetId> dataset_of_adapter,
           bool with_tokens, int depth = 4);
    ~Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    /// Which samples a window of evaluations is over: a dataset's eval samples, or all of it, those
    /// to train on, then those to evaluate on.
    enum class Evaluates : std::uint8_t { eval_samples, all_samples };
    /// Starts on a window; one that begins drops what was left of those before, others go on behind
    /// them.
    void start(const Window& window, Evaluates evaluates = Evaluates::eval_samples);
    PackedBatch next();

    /// Between two windows of a stream: `add` adds files, while none is read, and returns the
    /// dataset of each AdapterId there is then.
    void grow(const std::function<std::vector<DatasetId>()>& add);
    /// Stops reading, so that files can be added; the next window must be one that begins.
    void stop();
    /// Stops reading; `dataset_of_adapter` as at construction, for the adapters there are now.
    void restart(std::span<const DatasetId> dataset_of_adapter);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace loratrain
