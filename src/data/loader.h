#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/dataset_files.h"
#include "plan/plan.h"

namespace loratrain {

/// Rows of microbatches, read ahead of their use.

/// A microbatch's rows as host arrays: T tokens, samples one after another in the order of its
/// segments. A sample shorter than its SampleRef (packing `bucketed`) is padded at its end with id
/// 0 and target -100, and its positions go on; attention is causal, so pads change nothing that is
/// trained.
struct PackedBatch {
    std::vector<std::int32_t> token_ids;  ///< [T]; empty if the loader reads no tokens
    /// [T], shifted: the label of the next token of the same sample, -100 = none; empty if the
    /// loader reads no tokens.
    std::vector<std::int32_t> targets;
    std::vector<float> weights;            ///< [T], of the targets; empty = 1 each
    std::vector<float> advantages;         ///< [T], of the targets of rollouts; empty = none here
    std::vector<float> logprobs;           ///< likewise
    std::vector<std::int32_t> positions;   ///< [T]
    std::vector<std::int32_t> sample_ids;  ///< [T], index in the dataset
    std::vector<std::int32_t> offsets;     ///< [samples + 1]
};

/// Positions, sample ids and offsets alone: all that stages without embedding and head need.
PackedBatch pack_layout(const Microbatch& microbatch);

/// The dataset of each AdapterId.
std::vector<DatasetId> datasets_of_adapters(const Job& job);

/// Reads the microbatches of windows on a background thread, at most `depth` ahead of their use.
/// next() returns them in order and rethrows errors of the thread.
class Loader {
  public:
    /// `dataset_of_adapter`: by AdapterId. `with_tokens`: this rank has the embedding or the head.
    Loader(const DatasetFiles& files, std::span<const DatasetId> dataset_of_adapter,
           bool with_tokens, int depth = 4);
    ~Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    /// The samples of a window of evaluations: a dataset's eval samples, or all of its samples,
    /// those to train on before those to evaluate on.
    enum class Evaluates : std::uint8_t { eval_samples, all_samples };
    /// Adds a window. A window that begins a stream drops the microbatches that are left of windows
    /// before it; any other follows them.
    void start(const Window& window, Evaluates evaluates = Evaluates::eval_samples);
    PackedBatch next();

    /// Between two windows of a stream, runs `add` while no file is read: it adds files and returns
    /// the dataset of each AdapterId that there is then.
    void grow(const std::function<std::vector<DatasetId>()>& add);
    /// Stops reading, so that files can be added. The next window must begin a stream.
    void stop();
    /// Stops reading, and sets the dataset of each AdapterId that there is now.
    void restart(std::span<const DatasetId> dataset_of_adapter);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace loratrain
