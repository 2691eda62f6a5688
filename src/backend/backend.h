#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/buffer.h"
#include "backend/ops/attention.h"
#include "backend/ops/delta_net.h"
#include "backend/ops/dora.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/experts.h"
#include "backend/ops/gemm.h"
#include "backend/ops/lane_norm.h"
#include "backend/ops/lora.h"
#include "backend/ops/loss.h"
#include "backend/ops/optimizer.h"
#include "backend/ops/random.h"
#include "backend/ops/rows.h"
#include "backend/ops/token_rows.h"
#include "backend/ops/vera.h"
#include "backend/readback.h"
#include "backend/side_stream.h"
#include "base/tensor.h"

namespace loratrain {

/// The engine that runs operators: the interface of CPU and CUDA backends.

struct MemoryUse {
    std::size_t current = 0;  ///< bytes allocated now
    std::size_t peak = 0;
};

/// The most scratch that operators need, in bytes (plan/memory/engine_memory.h).
struct ScratchSizes {
    std::size_t operators = 0;
    std::size_t gemm_timing = 0;
    std::size_t attention_rows = 0;
    std::size_t attention_tiles = 0;
    std::size_t attention_scores = 0;
};

/// Time that a backend spent on shapes it met for the first time, while its stream stood still.
struct FirstUses {
    std::int64_t gemms = 0;  ///< classes of GEMMs whose algorithms were timed
    double gemm_seconds = 0.0;
};

class HostCopies;

/// The operators: X(name, parameter, part of a profile), one line each. The parameter's struct, in
/// the header named above it, says what the operator computes, with shapes and formula. `Backend`,
/// the two backends, `TimedBackend` and the rows of a profile (op_timer.h) are made from this list.
#define LORATRAIN_OPERATORS(X)                                      \
    /* ops/gemm.h */                                                \
    X(gemm, const Gemm&, gemm)                                      \
    X(gemm_fp8, const GemmFp8&, gemm)                               \
    X(quantize_rows, const QuantizeRows&, quantization)             \
    X(transpose_codes, const TransposeCodes&, quantization)         \
    X(dequantize, const Dequantize&, quantization)                  \
    /* ops/attention.h */                                           \
    X(rope, const Rope&, elementwise)                               \
    X(attention, const Attention&, attention)                       \
    X(attention_backward, const AttentionBackward&, attention)      \
    X(cached_attention, const CachedAttention&, attention)          \
    /* ops/delta_net.h */                                           \
    X(causal_conv, const CausalConv&, elementwise)                  \
    X(causal_conv_backward, const CausalConvBackward&, elementwise) \
    X(cached_conv, const CachedConv&, elementwise)                  \
    X(delta_gates, const DeltaGates&, elementwise)                  \
    X(delta_gates_backward, const DeltaGatesBackward&, elementwise) \
    X(delta_rule, const DeltaRule&, attention)                      \
    X(delta_rule_backward, const DeltaRuleBackward&, attention)     \
    X(cached_delta_rule, const CachedDeltaRule&, attention)         \
    X(gated_norm, const GatedNorm&, elementwise)                    \
    X(gated_norm_backward, const GatedNormBackward&, elementwise)   \
    /* ops/lora.h */                                                \
    X(lora_pack, std::span<const LoraPack>, lora)                   \
    X(lora_shrink, const LoraShrink&, lora)                         \
    X(lora_expand, const LoraExpand&, lora)                         \
    X(lora_backward, const LoraBackward&, lora)                     \
    X(lora_backward_group, std::span<const LoraBackward>, lora)     \
    X(lora_grad_a, const LoraGradA&, lora)                          \
    X(lora_expand_backward, const LoraExpandBackward&, lora)        \
    X(lora_gated_forward, const LoraGatedForward&, elementwise)     \
    X(lora_gated_backward, const LoraGatedBackward&, elementwise)   \
    X(lora_gather_a, const LoraIds&, lora)                          \
    X(lora_scatter_a, const LoraIds&, lora)                         \
    /* ops/token_rows.h */                                          \
    X(place_tokens, const PlaceTokens&, lora)                       \
    X(place_tokens_backward, const PlaceTokens&, lora)              \
    X(token_logits, const TokenLogits&, lora)                       \
    X(token_logits_backward, const TokenLogitsBackward&, lora)      \
    /* ops/dora.h */                                                \
    X(dora_norms, const DoraNorms&, lora)                           \
    X(dora_scale, const DoraScale&, lora)                           \
    X(dora_grad_magnitude, const DoraGradMagnitude&, lora)          \
    /* ops/vera.h */                                                \
    X(vera_product, const VeraProduct&, lora)                       \
    X(vera_gradients, const VeraGradients&, lora)                   \
    /* ops/elementwise.h */                                         \
    X(rms_norm, const RmsNorm&, elementwise)                        \
    X(rms_norm_backward, const RmsNormBackward&, elementwise)       \
    X(swiglu, const SwiGlu&, elementwise)                           \
    X(swiglu_backward, const SwiGluBackward&, elementwise)          \
    X(xielu, const Xielu&, elementwise)                             \
    X(xielu_backward, const XieluBackward&, elementwise)            \
    /* ops/lane_norm.h */                                           \
    X(row_dots, const RowDots&, elementwise)                        \
    X(lane_norm, const LaneNorm&, elementwise)                      \
    X(lane_norm_backward, const LaneNormBackward&, elementwise)     \
    /* ops/experts.h */                                             \
    X(route, const Route&, elementwise)                             \
    X(route_backward, const RouteBackward&, elementwise)            \
    X(multiply_experts, const ExpertProduct&, gemm)                 \
    X(expert_gate_up, const ExpertGateUp&, gemm)                    \
    X(expert_down_backward, const ExpertDownBackward&, gemm)        \
    X(combine_experts, const CombineExperts&, elementwise)          \
    X(weigh_experts, const WeighExperts&, elementwise)              \
    X(weigh_rows, const WeighRows&, elementwise)                    \
    X(narrow_experts, ExpertLoras, lora)                            \
    X(widen_experts, const ExpertLora&, lora)                       \
    X(add_expert_grads, ExpertLoras, lora)                          \
    /* ops/rows.h */                                                \
    X(copy, const Copy&, elementwise)                               \
    X(copy_heads, const CopyHeads&, elementwise)                    \
    X(sum_heads, const SumHeads&, elementwise)                      \
    X(add_bias, const AddBias&, elementwise)                        \
    X(add, const Add&, elementwise)                                 \
    X(gather_rows, const GatherRows&, elementwise)                  \
    X(scatter_rows, const ScatterRows&, elementwise)                \
    /* ops/random.h */                                              \
    X(fill_random, const FillRandom&, other)                        \
    X(draw_uniform, const DrawUniform&, other)                      \
    X(drop_rows, const DropRows&, lora)                             \
    X(add_noise, const AddNoise&, elementwise)                      \
    /* ops/loss.h */                                                \
    X(soft_cap, const SoftCap&, loss)                               \
    X(cross_entropy, const CrossEntropy&, loss)                     \
    X(shard_statistics, const ShardedCrossEntropy&, loss)           \
    X(sharded_cross_entropy, const ShardedCrossEntropy&, loss)      \
    X(choose_tokens, const ChooseTokens&, loss)                     \
    /* ops/optimizer.h */                                           \
    X(sum_squares, const SumSquares&, optimizer)                    \
    X(adamw, const AdamW&, optimizer)                               \
    X(adamw_8bit, const AdamW8bit&, optimizer)                      \
    X(move_doubles, const MoveDoubles&, other)

/// Declares an operator in the class of a backend.
#define LORATRAIN_OVERRIDE_OPERATOR(name, Parameter, part) void name(Parameter op) override;

/// Runs the operators of ops/ on a CPU (cpu/) or a GPU (cuda/), whose files have the same names.
///
/// Contract of every operator:
///   - Arguments are views; an operator owns nothing, and allocates nothing in steady state.
///   - Operators run in call order on the backend's one stream; the CPU backend runs them at once.
///   - Pointers marked [host] are host memory that is read during the call; all others are backend
///     memory.
///   - Shapes use the letters of base/tensor.h. Matrices have compute_dtype() (fp32 on the CPU);
///     factors, gradients, moments and sums are fp32 or fp64, as their types say.
///   - Results do not depend on the number of threads.
///   - Zero rows, segments or columns are legal and do nothing.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string description() const = 0;  ///< "cpu, 2 threads, oneDNN 2.6.3"
    virtual DType compute_dtype() const = 0;

    /// The stream on which operators are queued (a cudaStream_t), for communicators of device
    /// memory; null if operators run at once.
    virtual void* native_stream() const { return nullptr; }

    /// Zeroed memory. Throws Error naming `what` and the bytes if memory is short.
    virtual Buffer allocate(std::size_t bytes, const char* what) = 0;
    /// Allocates scratch now instead of at its first use, so that a run takes its planned memory
    /// from the start. Throws as allocate() does.
    virtual void prepare_scratch(const ScratchSizes& /*sizes*/) {}
    /// Sets a function that is called before anything that may wait for the whole device, such as
    /// the first use of a library's code, which the driver loads then. An empty function: nothing.
    virtual void before_stalls(const std::function<void()>& /*call*/) {}
    virtual FirstUses first_uses() const { return {}; }
    virtual void release(void* data, std::size_t bytes) = 0;
    virtual MemoryUse memory() const = 0;
    virtual void upload(void* target, const void* host_source, std::size_t bytes) = 0;
    virtual void download(void* host_target, const void* source, std::size_t bytes) = 0;
    /// Queues a read of the parts; does not wait. Without parts it marks a place in the stream.
    /// Results become ready in the order of the calls.
    virtual std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) = 0;
    virtual void zero(void* target, std::size_t bytes) = 0;
    virtual void synchronize() = 0;

    /// Copies between host memory and the backend's memory that overlap with its stream, for loads
    /// to `places` places (host_copies.h). Must not outlive the backend.
    virtual std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) = 0;

    /// A clock of the stream. Must not outlive the backend.
    virtual std::unique_ptr<StreamClock> make_clock() = 0;
    /// Null if operators run at once.
    virtual std::unique_ptr<SideStream> make_side_stream() { return nullptr; }
    /// Names the work queued until pop_range() for a profiler (ProfilerRange). `name` must live as
    /// long as the program.
    virtual void push_range(const char* /*name*/, std::int64_t /*number*/) {}
    virtual void pop_range() {}

    /// True if there is a fused kernel for these operands and it is faster than the separate
    /// operators (run_in_parts()).
    virtual bool takes_at_once(const LoraGatedForward& /*op*/) const { return false; }
    virtual bool takes_at_once(const LoraGatedBackward& /*op*/) const { return false; }
    virtual bool takes_at_once(const ExpertGateUp& /*op*/) const { return false; }
    virtual bool takes_at_once(const ExpertDownBackward& /*op*/) const { return false; }

#define LORATRAIN_OPERATOR(name, Parameter, part) virtual void name(Parameter op) = 0;
    LORATRAIN_OPERATORS(LORATRAIN_OPERATOR)
#undef LORATRAIN_OPERATOR
};

/// Runs the separate operators of a fused one, where there is no fused kernel.
void run_in_parts(Backend& backend, const LoraGatedForward& op);
void run_in_parts(Backend& backend, const LoraGatedBackward& op);
void run_in_parts(Backend& backend, const ExpertProduct& op);
void run_in_parts(Backend& backend, const ExpertGateUp& op);
void run_in_parts(Backend& backend, const ExpertDownBackward& op);

/// While one lives, work of the host is named in a profiler's timeline (NVTX on CUDA, nothing
/// elsewhere). `number` (layer, microbatch) distinguishes equal names.
class ProfilerRange {
  public:
    ProfilerRange(Backend& backend, const char* name, std::int64_t number = 0) : backend_(backend) {
        backend_.push_range(name, number);
    }
    ~ProfilerRange() { backend_.pop_range(); }
    ProfilerRange(const ProfilerRange&) = delete;
    ProfilerRange& operator=(const ProfilerRange&) = delete;

  private:
    Backend& backend_;
};

}  // namespace loratrain
