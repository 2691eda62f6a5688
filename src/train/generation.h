#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "data/dataset_files.h"
#include "model/stage.h"

namespace loratrain {

/// What an adapter has written behind a prompt.
struct GeneratedText {
    Prompt prompt;
    std::vector<std::int32_t> tokens;  ///< with the stop token, where it came to one
    bool stopped = false;
};
template <class Archive>
void fields(Archive& archive, Prompt& prompt) {
    archive("sample", prompt.sample);
    archive("tokens", prompt.tokens);
    archive("reference", prompt.reference);
}
template <class Archive>
void fields(Archive& archive, GeneratedText& text) {
    archive("prompt", text.prompt);
    archive("tokens", text.tokens);
    archive("stopped", text.stopped);
}

/// A line for each (io/run_files/metrics_file.h).
std::string to_text(const std::vector<GeneratedText>& texts);

/// "adapter a: 64 texts of 5120 tokens in 3.2 s, 40 ended with a stop token, 3 are their reference
/// token by token"
std::string texts_notice(const std::string& adapter, const std::vector<GeneratedText>& texts,
                         double seconds);

/// Writes texts with an adapter that is resident: greedy, so that each token is the most likely one
/// (of equal ones the first) behind all before it, until a stop token or max_new_tokens. Prompts
/// run as whole samples, as many at a time as a microbatch holds; then a forward has one token of
/// each text, whose keys and values are kept (KeyValueCache). Texts that have ended go on with the
/// others of their batch, unheard, so that a batch has the same rows in all forwards. Collective
/// over the ranks of a replica.
class Generator {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;
        const MpiSession& mpi;      ///< of the run, as the communicator's ranks
        const MpiSession& replica;  ///< its ranks alone
        Stage& stage;
        Communicator& communicator;
        std::vector<std::int32_t> stop_tokens;
        std::function<void()> meanwhile;
    };

    /// All ranks of the replica give the same.
    Generator(Parts parts, AdapterId adapter);

    /// The same on all ranks.
    std::vector<GeneratedText> write(const std::vector<Prompt>& prompts);

  private:
    /// How many of them from `first` on make a batch.
    std::size_t batch_end(const std::vector<Prompt>& prompts, std::size_t first) const;
    void write_batch(std::vector<GeneratedText>& texts);
    std::vector<std::int32_t> next_tokens(const std::vector<std::vector<std::int32_t>>& rows,
                                          const std::vector<std::int64_t>& first_positions,
                                          KeyValueCache::Rows what);
    void forward(const std::vector<std::vector<std::int32_t>>& rows,
                 const std::vector<std::int64_t>& first_positions, KeyValueCache::Rows what);
    /// Tokens that a text may have in all.
    std::int64_t room(const Prompt& prompt) const;
    bool ends_text(std::int32_t token) const;

    Parts parts_;
    AdapterId adapter_;
    ReplicaView view_;
    std::size_t stage_index_;
};

}  // namespace loratrain
