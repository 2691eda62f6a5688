#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// The load of a microbatch, and costs: coefficients that turn a load into seconds.

/// Load of a microbatch: everything that its time depends on.
struct MicrobatchLoad {
    std::int64_t tokens = 0;
    double squares = 0.0;      ///< sum over samples of AttentionSpan::squares()
    std::int64_t targets = 0;  ///< rows that the head computes; it skips all others

    MicrobatchLoad& operator+=(const MicrobatchLoad& other) {
        tokens += other.tokens;
        squares += other.squares;
        targets += other.targets;
        return *this;
    }
};

/// Load of a microbatch and of each adapter's rows in it. The total is enough for a stage that
/// computes every adapter in all its layers.
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
    /// Load of the rows of these adapters.
    MicrobatchLoad of(const AdapterSpan& adapters) const;
    /// Number of these adapters that have rows; 1 if adapters are not distinguished.
    std::int64_t segments(const AdapterSpan& adapters = {}) const;
};

/// Seconds = fixed + per_token * rows + per_square * squares + per_segment * segments, all
/// coefficients at least 0. The form of LobRA's cost model and of mLoRA's Eq. 5 (design.md "Costs
/// of plans"). per_segment: each adapter with rows in the microbatch, whose factors are placed
/// beside the base's matrices and multiplied on their own.
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

/// Seconds of the host to queue work = fixed + per_segment * segments (adapters with rows in the
/// microbatch).
struct HostLine {
    double fixed = 0.0;
    double per_segment = 0.0;
    double seconds(double segments) const { return fixed + per_segment * segments; }
    friend bool operator==(const HostLine&, const HostLine&) = default;
};

/// Seconds of the host at the n-th new shape of a kind = each + per_row * rows + first / n. For
/// every shape all candidate kernels are tried, which takes longer with more rows; fewer and fewer
/// of them have to be loaded.
struct NewShapeLine {
    double each = 0.0;
    double first = 0.0;
    /// Shapes that this process met before training (profile of costs); not kept with costs.
    std::int32_t met = 0;
    double per_row = 0.0;

    bool any() const { return each > 0.0 || first > 0.0 || per_row > 0.0; }
    /// nth: from 1, not counting `met`.
    double seconds(std::int64_t nth, double rows) const {
        return each + per_row * rows + first / static_cast<double>(nth + met);
    }
    friend bool operator==(const NewShapeLine&, const NewShapeLine&) = default;
};

/// Seconds of a GPU's host for a microbatch of any size: launches, tables, operators' calls. All 0
/// if the host computes itself.
struct HostCosts {
    HostLine layer_forward;  ///< one decoder layer with its adapters
    HostLine layer_backward;
    HostLine forward;  ///< once on every stage, beside the layers
    HostLine backward;
    double head = 0.0;  ///< head, loss and its gradient
    // Once per shape that is new to the stage, while its stream stands still (met_shapes.h).
    NewShapeLine new_rows;     ///< choice of the layers' GEMM algorithms
    NewShapeLine new_targets;  ///< choice of the head's GEMM algorithms
    friend bool operator==(const HostCosts&, const HostCosts&) = default;
};

/// Seconds of a message between two ranks = fixed + per_byte * bytes.
struct LinkCost {
    double fixed = 0.0;     ///< latency
    double per_byte = 0.0;  ///< beside computation
    double seconds(double bytes) const { return fixed + per_byte * bytes; }
    friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

/// Seconds of one rank for one model, compute type and device; with tensor parallelism, of a lane
/// for its share of the model.
struct CostModel {
    CostLine layer_forward;   ///< one decoder layer with its adapters; rows = tokens
    CostLine layer_backward;  ///< the same; without recomputation
    /// Part of layer_backward.per_token that the model's first layer saves: the gradient of its
    /// input.
    double first_layer_saving = 0.0;
    CostLine head;   ///< head, loss and its gradient; rows = targets
    HostCosts host;  ///< the host runs ahead of the GPU or delays it (cost_model.h)
    double step_per_parameter = 0.0;  ///< an optimizer step: sum of squares and AdamW
    double step_fixed = 0.0;
    LinkCost message;  ///< between ranks of one host
    /// Between ranks of two hosts with `ranks_per_host` ranks each; none = not measured, as
    /// `message`.
    std::optional<LinkCost> between_hosts;
    const LinkCost& link(bool on_one_host) const {
        return on_one_host || !between_hosts ? message : *between_hosts;
    }
    /// Copy of one layer's frozen weights from host memory, or from the rank that owns it, beside
    /// computation.
    double layer_transfer = 0.0;
    /// Seconds by which this copy slows computation, since it uses memory bandwidth. They are not
    /// hidden (add_transfers()).
    double layer_traffic = 0.0;
    /// Share by which computation slows down if layers come from other ranks' memory: active links
    /// use part of the GPU's power, whatever their load (add_transfers()).
    double link_power = 0.0;
    /// Copy of a token's activations of one layer to host memory, or back, beside computation; 0 =
    /// the link's rate is not known, or no job asks.
    double offload_per_token = 0.0;
    /// Number of the host's `ranks_per_host` ranks that compute at full speed at the same time. If
    /// k > full_speed_ranks compute, each has full_speed_ranks / k of the speed. 0 = no limit.
    double full_speed_ranks = 0.0;
    std::int32_t ranks_per_host = 1;
    std::string source;  ///< "built in for h200", "measured on NVIDIA H200", ...
    friend bool operator==(const CostModel&, const CostModel&) = default;
};

}  // namespace loratrain
