#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "model/stage.h"
#include "train/text_order.h"

namespace loratrain {

/// Generation of texts with adapters.

/// One line per text (io/run_files/metrics_file.h).
std::string to_text(const std::vector<GeneratedText>& texts);

/// "adapter a: 64 generations of 5120 tokens in 3.2 s, 40 ended with a stop token, 3 are their
/// reference token by token"
std::string texts_notice(const std::string& adapter, const std::vector<GeneratedText>& texts,
                         double seconds);

/// Generation with resident adapters: every token is chosen (base/token_choice.h) until a stop
/// token or max_new_tokens. Texts of all adapters are written together, with policy mlora one
/// adapter's at a time, in batches for which there is room (text_room()). The first forwards of a
/// batch have whole prompts, as many as a microbatch holds. Each later forward has one token of
/// each text; what layers need of earlier ones is kept (TextCache), and computed anew where a text
/// becomes so long that longrope has other factors. A batch has the same rows in all these
/// forwards: texts that have ended are computed on, and the result is dropped. Collective over the
/// ranks of a replica.
class Generator {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;
        const MpiSession& mpi;      ///< all ranks of the worker, as the communicator's
        const MpiSession& replica;  ///< the replica's ranks
        Stage& stage;
        Communicator& communicator;
        std::function<void()> meanwhile;
    };

    explicit Generator(Parts parts);

    /// The same texts on all ranks, in the order of the orders, which are the same on all ranks of
    /// the replica: those of an adapter follow each other, and all are greedy or none is.
    std::vector<GeneratedText> write(std::span<const TextOrder> orders);

  private:
    /// The newest token of a text, or its prompt, and the position where that begins.
    struct Row {
        std::vector<std::int32_t> tokens;
        std::int64_t position = 0;
    };
    using Orders = std::span<const TextOrder>;
    /// Texts that are written at once.
    struct Batch {
        Orders orders;
        std::vector<std::int64_t> rooms = {};  ///< room() of each
        std::vector<Row> rows = {};            ///< of the next forward
        std::vector<GeneratedText> texts = {};
        bool is_full(std::size_t text) const;
    };
    /// Texts of a batch that a forward computes.
    struct Part {
        std::size_t first = 0;
        std::size_t count = 0;
    };

    /// Number of the orders in the batch that begins with the first of them.
    std::size_t batch_size(Orders orders) const;
    /// The prompts from `first` on that one forward takes.
    Part prompts_from(const Batch& batch, std::size_t first) const;
    std::vector<GeneratedText> write_batch(Orders orders);
    /// Computes what is kept of texts that become longer than short_length() by the next token.
    void compute_anew(Batch& batch);
    /// Computes the rows of the part's texts, and adds to each text its next token.
    void write_tokens(Batch& batch, const Part& part, TextCache::Rows what);
    std::vector<ChosenToken> choose(std::span<const TokenDraw> draws);
    std::vector<ChosenToken> likely_of_lanes(std::span<const TokenDraw> draws);
    std::vector<ChosenToken> drawn_of_lanes(std::span<const TokenDraw> draws);
    void forward(const Batch& batch, const Part& part, TextCache::Rows what);
    /// Most tokens of a prompt and its text together: no more than short_length() if a microbatch
    /// does not hold a text that becomes longer.
    std::int64_t room(const TextOrder& order) const;
    bool is_last_stage() const { return stage_index_ + 1 == view_.replica.stages.size(); }
    /// Rank in Parts::replica of a lane of the last stage.
    int last_rank(std::int32_t lane) const;

    Parts parts_;
    ReplicaView view_;
    std::size_t stage_index_;
    std::int64_t short_length_;
};

}  // namespace loratrain
