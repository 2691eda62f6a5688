#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// Files of tokenised samples.

/// Label of a token that is not a target, as in Hugging Face's data collators.
inline constexpr std::int32_t no_target = -100;

/// One tokenised sample. Labels are not shifted yet; no_target marks tokens that are no targets.
/// weights[t] weighs the loss of labels[t]: the loss of a batch is sum w nll / sum w over its
/// targets.
struct TokenSample {
    std::vector<std::int32_t> input_ids;
    std::vector<std::int32_t> labels;
    std::vector<float> weights = {};  ///< > 0 for every target; empty = 1 each
    /// Of rollouts, one for each of input_ids; else empty. Those of labels[t] are advantages[t],
    /// and logprobs[t], its log-probability for the sampler.
    std::vector<float> advantages = {};
    std::vector<float> logprobs = {};
    /// Of a rollout: optimizer steps of the adapter that sampled it; none = not known.
    std::optional<std::int32_t> adapter_step = {};
    std::optional<bool> label = {};  ///< of `kto`: true = desirable; none if the file has no labels
};

/// Random access to the samples of a file. Opening scans the file once for offsets and lengths, and
/// tokenises text lines; token data stay in the file and are read on demand. Reads are thread-safe.
class TokenFile {
  public:
    virtual ~TokenFile() = default;
    virtual std::int64_t size() const = 0;
    /// Number of neighbours that belong together, from each multiple of it on: 2 for pairs.
    virtual std::int64_t group_samples() const { return 1; }
    /// True if samples have a TokenSample::label; all samples or none have.
    virtual bool is_labelled() const { return false; }
    /// True if samples are rollouts, with advantages and logprobs; all samples or none are.
    virtual bool is_rollouts() const { return false; }
    virtual std::int64_t length(std::int64_t sample) const = 0;
    virtual TokenSample read(std::int64_t sample) const = 0;
    /// The tokenizer that made the tokens, as prepare_data.py notes it in .h5: "xxh64:DIGEST" of
    /// tokenizer.json, or a word; "" = not known.
    virtual std::string tokenizer() const { return ""; }
    /// Place of a sample for messages: "data.jsonl:17", "data.h5:sample 16".
    virtual std::string where(std::int64_t sample) const = 0;
};

/// Called for every good sample, in order, while a file is scanned at opening; `where` is
/// TokenFile::where().
using SampleVisitor = std::function<void(const std::string& where, const TokenSample& sample)>;

/// Ids of tokenizer `bytes`: 0 to 255 are bytes, then these.
inline constexpr std::int32_t byte_bos = 256;
inline constexpr std::int32_t byte_eos = 257;

/// Tokens of bytes: [BOS] prompt completion [EOS]; completion and EOS are targets. A "text" is a
/// completion without a prompt.
TokenSample tokenize_bytes(const std::string& prompt, const std::string& completion);

/// Opens a file of samples. Formats:
///   .jsonl, a line    {"input_ids", "labels", "weights"}; labels default to input_ids
///   .jsonl, bytes     {"prompt", "completion"} or {"text"}
///   .jsonl, pairs     {"chosen_input_ids", "chosen_labels", "rejected_input_ids",
///                     "rejected_labels"}, with bytes {"prompt", "chosen", "rejected"}: two
///                     samples, the chosen one first
///   .jsonl, labelled  a line as above with "label", true or false
///   .jsonl, rollouts  {"input_ids", "labels", "advantages", "logprobs", "adapter_step"}; the last
///                     may be missing
///   .h5, .hdf5        datasets tokens, labels (int32, flat), offsets (int64 [samples + 1]), and
///                     optionally weights, or advantages and logprobs (float) and adapter_step
///                     (int32 [samples])
/// There are as many weights as ids, each 0 or from 1e-30 to 1e30; a label of weight 0 becomes
/// no_target. Advantages and logprobs are as many and finite, logprobs at most 0 (to rounding). A
/// blank last line is accepted.
///
/// Throws InputError with all problems of the file, with file:line (at most 20, then a count): not
/// JSON, wrong types, ids, labels and other lists of different lengths, an empty file or sample,
/// negative ids, bad weights, advantages or logprobs, unknown keys, and keys whose values training
/// would not honour (token_rules.h).
///
/// `visit` (may be empty) sees all samples during the scan, which spares a second pass.
std::unique_ptr<TokenFile> open_token_file(const std::string& path, bool bytes,
                                           const SampleVisitor& visit = {});

/// Several files of one kind (equal group_samples(), is_labelled() and is_rollouts()) as one: the
/// samples of each follow those of the file before it. A single file is returned as it is.
std::unique_ptr<TokenFile> join_token_files(std::vector<std::unique_ptr<TokenFile>> files);

}  // namespace loratrain
