#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json_text.h"

namespace loratrain {

/// The account of a run: seconds by phase, useful work and energy.

/// What a rank's time goes into. At any moment of a run a rank is in exactly one phase.
enum class RunPhase : std::uint8_t {
    start,          ///< files, devices, links, weights, records; before the first step
    planning,       ///< the plan, measured costs; later: rank 0 waits for the next window
    forward,        ///< of training microbatches, with loss and head
    backward,       ///< with what is recomputed
    optimizer,      ///< steps
    communication,  ///< sending, and waiting for a send or for sums over replicas
    waiting,        ///< idle: a message, an order of rank 0 or a result has not come yet
    evaluation,     ///< forwards of evaluations and references
    texts,          ///< that adapters write
    checkpoint,
    exporting,  ///< adapters
    other,      ///< admission of adapters, records, the end
};
inline constexpr std::size_t run_phase_count = 12;
using PhaseSeconds = std::array<double, run_phase_count>;

/// "forward", as tables and provenance.json have it.
const char* word_of(RunPhase phase);

/// Seconds by kind of work.
struct KindSeconds {
    double attention = 0.0;
    double linears = 0.0;  ///< with LoRA, norms and elementwise work
    double head = 0.0;     ///< with the loss

    double sum() const { return attention + linears + head; }
    KindSeconds& operator+=(const KindSeconds& other);
    /// The same shares of `seconds`; all 0 where nothing is known.
    KindSeconds scaled_to(double seconds) const;
};

/// Seconds over the ranks of a run.
struct RankSpread {
    double least = 0.0;
    double mean = 0.0;
    double most = 0.0;
};

/// Where the time and the energy of one start of a run went. provenance.json has one for each
/// start, and their sum.
struct RunAccount {
    int ranks = 1;
    /// It has rank 0's time until the last checkpoint, and no energy: the start has not ended, or
    /// was killed.
    bool until_checkpoint = false;
    double wall_seconds = 0.0;      ///< from reading the job to the end, mean over the ranks
    double training_seconds = 0.0;  ///< of these, from the first step on
    std::array<RankSpread, run_phase_count> phases{};
    KindSeconds forward{};        ///< RunPhase::forward split by the plan's costs: an estimate
    KindSeconds backward{};       ///< the same of RunPhase::backward
    double tokens = 0.0;          ///< trained, of all adapters
    double useful_flop = 0.0;     ///< of these tokens (plan/cost/cost_model.h)
    std::string device{};         ///< of a rank: "NVIDIA H200", "cpu"
    double peak_flop_rate = 0.0;  ///< of a device, by its maker; 0 = not known
    int sensors = 0;              ///< GPUs whose power was sampled; 0 = none
    double joules = 0.0;          ///< of these from the first step on

    const RankSpread& of(RunPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
    /// Of the wall time.
    double share(RunPhase phase) const;
    double tokens_per_second() const;           ///< of the whole start
    double training_tokens_per_second() const;  ///< from the first step on
    double flop_rate() const;                   ///< useful, of a rank, from the first step on
};

/// The starts of a run together: all that adds up is added; `least` and `most` stay 0, as starts
/// may have different ranks. The energy is that of starts where it was measured, if of all.
RunAccount sum_of(const std::vector<RunAccount>& starts);

/// The account in JSON, as provenance.json has it.
OrderedJson to_json(const RunAccount& account);
/// None for what to_json() does not write.
std::optional<RunAccount> run_account_from_json(const OrderedJson& json);
/// Those that the starts in the contents of provenance.json have.
std::vector<RunAccount> accounts_in(const OrderedJson& provenance);

}  // namespace loratrain
