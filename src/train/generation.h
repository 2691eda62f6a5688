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

/// Greedy generation of texts with an adapter.

/// A text that an adapter has written after a prompt.
struct GeneratedText {
    Prompt prompt;
    std::vector<std::int32_t> tokens;  ///< with the stop token, if there was one
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

/// One line per text (io/run_files/metrics_file.h).
std::string to_text(const std::vector<GeneratedText>& texts);

/// "adapter a: 64 generations of 5120 tokens in 3.2 s, 40 ended with a stop token, 3 are their
/// reference token by token"
std::string texts_notice(const std::string& adapter, const std::vector<GeneratedText>& texts,
                         double seconds);

/// Greedy generation with a resident adapter: every token is the most likely one (the first of
/// equal ones), until a stop token or max_new_tokens. The first forward has whole prompts, as many
/// as a microbatch holds. Each later forward has one token of each text; what layers need of
/// earlier ones is kept (TextCache). A batch has the same rows in all forwards: texts that have
/// ended are computed on, and the result is dropped. Collective over the ranks of a replica.
class Generator {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;
        const MpiSession& mpi;      ///< all ranks of the worker, as the communicator's
        const MpiSession& replica;  ///< the replica's ranks
        Stage& stage;
        Communicator& communicator;
        std::vector<std::int32_t> stop_tokens;
        std::function<void()> meanwhile;
    };

    /// The arguments are the same on all ranks of the replica.
    Generator(Parts parts, AdapterId adapter);

    /// The same texts on all ranks.
    std::vector<GeneratedText> write(const std::vector<Prompt>& prompts);

  private:
    /// One past the last prompt of the batch that begins with `first`.
    std::size_t batch_end(const std::vector<Prompt>& prompts, std::size_t first) const;
    void write_batch(std::vector<GeneratedText>& texts);
    std::vector<std::int32_t> next_tokens(const std::vector<std::vector<std::int32_t>>& rows,
                                          const std::vector<std::int64_t>& first_positions,
                                          TextCache::Rows what);
    void forward(const std::vector<std::vector<std::int32_t>>& rows,
                 const std::vector<std::int64_t>& first_positions, TextCache::Rows what);
    /// Most tokens of a prompt and its text together.
    std::int64_t room(const Prompt& prompt) const;
    bool ends_text(std::int32_t token) const;

    Parts parts_;
    AdapterId adapter_;
    ReplicaView view_;
    std::size_t stage_index_;
};

}  // namespace loratrain
