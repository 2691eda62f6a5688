#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// Label of a token that is not a target, as in Hugging Face's data collators.
inline constexpr std::int32_t no_target = -100;

/// One tokenised sample; labels not yet shifted, no_target where there is none. weights[t] is what
/// the loss of labels[t] counts: the loss of a batch is sum w nll / sum w over its targets.
struct TokenSample {
    std::vector<std::int32_t> input_ids;
    std::vector<std::int32_t> labels;
    std::vector<float> weights = {};  ///< more than 0 where there is a label; empty: 1 each
    std::optional<bool> label = {};   ///< whether it is desirable, where a file says so
};

/// Random access to a file of samples. Opening scans it once for offsets and lengths (and, for text
/// lines, tokenises); token data stay in the file and are read on demand. Thread-safe reads.
class TokenFile {
  public:
    virtual ~TokenFile() = default;
    virtual std::int64_t size() const = 0;
    /// Neighbours from a multiple of this number on that belong together: 2 of pairs.
    virtual std::int64_t group_samples() const { return 1; }
    /// Whether samples have a label; all or none.
    virtual bool is_labelled() const { return false; }
    virtual std::int64_t length(std::int64_t sample) const = 0;
    virtual TokenSample read(std::int64_t sample) const = 0;
    /// Which tokenizer made the tokens, as prepare_data.py notes it in .h5: "xxh64:DIGEST" of its
    /// tokenizer.json, or a word; "" = not known.
    virtual std::string tokenizer() const { return ""; }
    /// "data.jsonl:17" or "data.h5:sample 16", for messages.
    virtual std::string where(std::int64_t sample) const = 0;
};

/// Called for every good sample while a file is scanned at opening, in order; `where` as for
/// messages.
using SampleVisitor = std::function<void(const std::string& where, const TokenSample& sample)>;

/// How bytes become ids: bytes 0..255, then these.
inline constexpr std::int32_t byte_bos = 256;
inline constexpr std::int32_t byte_eos = 257;

/// {"prompt","completion"}: [BOS] prompt completion [EOS], trained: completion and EOS.
/// {"text"}: [BOS] text [EOS], trained: all but BOS.
TokenSample tokenize_bytes(const std::string& prompt, const std::string& completion);

/// `path`: .jsonl of {"input_ids","labels"} (labels optional: = input_ids), or with `bytes` of
/// prompt/completion/text lines; or .h5/.hdf5 with datasets tokens, labels (int32, flat) and
/// offsets (int64 [samples + 1]). Single samples of tokens may have "weights" (.h5: of floats), as
/// many as ids, each 0 or from 1e-30 to 1e30; a label of weight 0 becomes no_target. A .jsonl may
/// hold pairs instead, which are two samples each, the chosen one first: {"chosen_input_ids",
/// "chosen_labels","rejected_input_ids","rejected_labels"}, or with `bytes`
/// {"prompt","chosen","rejected"}; or samples with a "label" of true or false beside their labels,
/// or completion. All problems of a file at once, with file:line (at most 20 listed, then a count):
/// not JSON, wrong types, labels, weights and ids of different length, empty sample, negative ids,
/// bad weights, unknown keys, a mask without labels or against them, an attention_mask with zeros,
/// position_ids and the like that mark several documents (line_keys.h). A blank last line is fine;
/// an empty file is a problem.
///
/// `visit` (may be empty) spares a caller that must see all tokens a second pass.
std::unique_ptr<TokenFile> open_token_file(const std::string& path, bool bytes,
                                           const SampleVisitor& visit = {});

}  // namespace loratrain
