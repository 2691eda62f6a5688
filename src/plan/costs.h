#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// What the time of a microbatch depends on.
struct MicrobatchLoad {
    std::int64_t tokens = 0;
    double squares = 0.0;      ///< sum over samples of AttentionSpan::squares()
    std::int64_t targets = 0;  ///< rows that the head computes; others are skipped

    MicrobatchLoad& operator+=(const MicrobatchLoad& other) {
        tokens += other.tokens;
        squares += other.squares;
        targets += other.targets;
        return *this;
    }
};

/// The load of a microbatch and of each adapter's rows in it. A MicrobatchLoad alone does for
/// stages that compute every adapter in all their layers.
struct AdapterLoads {
    struct Part {
        AdapterId adapter{};
        MicrobatchLoad load;
    };
    MicrobatchLoad total;
    std::vector<Part> parts;  ///< one per adapter

    AdapterLoads() = default;
    AdapterLoads(const MicrobatchLoad& load)  // NOLINT(google-explicit-constructor)
        : total(load) {}
    void add(AdapterId adapter, const MicrobatchLoad& load);
    void clear() {
        total = {};
        parts.clear();
    }
    /// The total of these adapters' rows.
    MicrobatchLoad of(const AdapterSpan& adapters) const;
    /// Adapters of these that have rows; 1 where they are not distinguished.
    std::int64_t segments(const AdapterSpan& adapters = {}) const;
};

/// Seconds = fixed + per_token * rows + per_square * squares + per_segment * segments; no
/// coefficient is negative. The form of LobRA's cost model and of mLoRA's Eq. 5 (design.md
/// "Costs of plans"), and what each adapter with rows in the microbatch adds to a processor's
/// time: its factors are placed beside the base's matrices, and multiplied on their own.
struct CostLine {
    double fixed = 0.0;
    double per_token = 0.0;
    double per_square = 0.0;
    double per_segment = 0.0;
    double seconds(double rows, double squares, double segments = 0.0) const {
        return fixed + per_token * rows + per_square * squares + per_segment * segments;
    }
    friend bool operator==(const CostLine&, const CostLine&) = default;
};

/// What the host takes to queue work: seconds = fixed + per_segment * segments, the adapters that
/// have rows in the microbatch.
struct HostLine {
    double fixed = 0.0;
    double per_segment = 0.0;
    double seconds(double segments) const { return fixed + per_segment * segments; }
    friend bool operator==(const HostLine&, const HostLine&) = default;
};

/// What the host takes at the n-th shape of a kind that a process meets: each + per_row * rows +
/// first / n seconds. Candidates are tried for every shape, which takes the longer the more rows it
/// has; of the kernels that they are, ever fewer are loaded for the first time.
struct NewShapeLine {
    double each = 0.0;
    double first = 0.0;
    /// Shapes that this process met before it trains (in a profile of costs); not kept with costs.
    std::int32_t met = 0;
    double per_row = 0.0;

    bool any() const { return each > 0.0 || first > 0.0 || per_row > 0.0; }
    /// nth: from 1, beside those met before.
    double seconds(std::int64_t nth, double rows) const {
        return each + per_row * rows + first / static_cast<double>(nth + met);
    }
    friend bool operator==(const NewShapeLine&, const NewShapeLine&) = default;
};

/// What the host of a GPU takes for a microbatch, whatever its tokens: launches, tables, operators'
/// calls. In seconds; all 0 where the host computes itself.
struct HostCosts {
    HostLine layer_forward;  ///< one decoder layer with its adapters
    HostLine layer_backward;
    HostLine forward;  ///< once on every stage, beside the layers
    HostLine backward;
    double head = 0.0;  ///< head, loss and its gradient
    /// Once for a shape that is new to the stage, while its stream stands still (met_shapes.h):
    NewShapeLine new_rows;     ///< to choose the layers' GEMM algorithms
    NewShapeLine new_targets;  ///< to choose the head's
    friend bool operator==(const HostCosts&, const HostCosts&) = default;
};

/// What a message takes between two ranks.
struct LinkCost {
    double fixed = 0.0;     ///< latency
    double per_byte = 0.0;  ///< and what it costs beside computation
    double seconds(double bytes) const { return fixed + per_byte * bytes; }
    friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

/// Times of one rank for one model, compute type and device; of a lane, for its share of the model.
struct CostModel {
    CostLine layer_forward;   ///< one decoder layer with its adapters; rows = tokens
    CostLine layer_backward;  ///< the same; without recomputation
    /// Of layer_backward.per_token, what the model's first layer does without: nothing asks for the
    /// gradient of its input.
    double first_layer_saving = 0.0;
    CostLine head;                    ///< head, loss and its gradient; rows = targets
    HostCosts host;                   ///< runs ahead of the GPU, or holds it up (cost_model.h)
    double step_per_parameter = 0.0;  ///< an optimizer step: sum of squares and AdamW
    double step_fixed = 0.0;
    LinkCost message;  ///< between ranks of one host
    /// Between ranks of two hosts, which have `ranks_per_host` each; none = not measured: as above.
    std::optional<LinkCost> between_hosts;
    const LinkCost& link(bool on_one_host) const {
        return on_one_host || !between_hosts ? message : *between_hosts;
    }
    /// To bring the frozen weights of one layer from host memory, or from the rank that holds it,
    /// beside computation.
    double layer_transfer = 0.0;
    /// By which that makes what computes beside it longer: it takes of the memory's rate, and none
    /// of that hides (add_transfers()).
    double layer_traffic = 0.0;
    /// By which share all that computes takes longer where layers come from other ranks' memory:
    /// links that are awake take of the GPU's power, whatever goes over them (add_transfers()).
    double link_power = 0.0;
    /// To copy a token's activations of one layer to host memory, or back, beside computation; 0 =
    /// the link's rate is not known, or no job asks.
    double offload_per_token = 0.0;
    /// Of the `ranks_per_host` consecutive ranks of a host as many compute at full speed at the
    /// same time; k of them, where k is more, at full_speed_ranks / k of it. 0 = all, whatever k.
    double full_speed_ranks = 0.0;
    std::int32_t ranks_per_host = 1;
    std::string source;  ///< "built in for h200", "measured on NVIDIA H200", ...
    friend bool operator==(const CostModel&, const CostModel&) = default;
};

}  // namespace loratrain
