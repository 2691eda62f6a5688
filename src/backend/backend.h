#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/buffer.h"
#include "backend/ops/attention.h"
#include "backend/ops/dora.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/experts.h"
#include "backend/ops/gemm.h"
#include "backend/ops/lora.h"
#include "backend/ops/loss.h"
#include "backend/ops/optimizer.h"
#include "backend/ops/random.h"
#include "backend/ops/vera.h"
#include "backend/readback.h"
#include "backend/side_stream.h"
#include "backend/stream_clock.h"
#include "base/quantized.h"
#include "base/random_matrix.h"
#include "base/tensor_view.h"

namespace loratrain {

struct MemoryUse {
    std::size_t current = 0;  ///< bytes allocated now
    std::size_t peak = 0;
};

/// Scratch that operators need, in bytes, at most (plan/memory/engine_memory.h).
struct ScratchSizes {
    std::size_t operators = 0;
    std::size_t gemm_timing = 0;
    std::size_t attention_rows = 0;
    std::size_t attention_tiles = 0;
    std::size_t attention_scores = 0;
};

/// What shapes took that were new to a backend, while its stream stood still.
struct FirstUses {
    std::int64_t gemms = 0;  ///< whose algorithms were timed
    double gemm_seconds = 0.0;
};

class HostCopies;

/// Engine that runs the operators (ops/): CPU (cpu/) or CUDA (cuda/), the same op names file by
/// file.
///
/// Contract of every op: arguments are views, nothing is owned and nothing is allocated in steady
/// state; ops run in call order on the backend's one stream (the CPU backend runs them at once);
/// pointers marked [host] are host memory read during the call, all others are backend memory.
/// Shapes use the alphabet of base/tensor_view.h; compute type is `compute_dtype()` (fp32 on the
/// CPU), factors, gradients, moments and sums are fp32 or fp64 as their types say. Results do not
/// depend on the number of threads; zero rows, segments or columns are legal and do nothing.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string description() const = 0;  ///< "cpu, 2 threads, oneDNN 2.6.3"
    virtual DType compute_dtype() const = 0;

    /// The stream that ops are queued on (a cudaStream_t), for communicators of device memory; null
    /// where ops run at once.
    virtual void* native_stream() const { return nullptr; }

    /// Throws Error naming `what` and the bytes when memory is short. Contents are zeroed.
    virtual Buffer allocate(std::size_t bytes, const char* what) = 0;
    /// Allocates scratch now instead of when an operator first asks for it, so that a run uses from
    /// its start the memory that was planned. Throws as allocate() does.
    virtual void prepare_scratch(const ScratchSizes& /*sizes*/) {}
    /// `call` is called from now on before what may wait for the whole device: the first use of a
    /// library's code, which the driver loads then. An empty function ends that.
    virtual void before_stalls(const std::function<void()>& /*call*/) {}
    virtual FirstUses first_uses() const { return {}; }
    virtual void release(void* data, std::size_t bytes) = 0;
    virtual MemoryUse memory() const = 0;
    virtual void upload(void* target, const void* host_source, std::size_t bytes) = 0;
    virtual void download(void* host_target, const void* source, std::size_t bytes) = 0;
    /// Reads the parts as they are when the stream comes to this call, without waiting for it; no
    /// part at all marks the place. Results become ready in the order of the calls.
    virtual std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) = 0;
    virtual void zero(void* target, std::size_t bytes) = 0;
    virtual void synchronize() = 0;

    /// Copies between host memory and the backend's beside its stream, for loads to so many places
    /// (backend/host_copies.h); it must not outlive the backend.
    virtual std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) = 0;

    /// A clock of the stream; it must not outlive the backend.
    virtual std::unique_ptr<StreamClock> make_clock() = 0;
    /// Null where ops run at once.
    virtual std::unique_ptr<SideStream> make_side_stream() { return nullptr; }
    /// Names the work queued until pop_range() for a profiler (backend/range.h); `name` must live
    /// as long as the program.
    virtual void push_range(const char* /*name*/, std::int64_t /*number*/) {}
    virtual void pop_range() {}

    /// Copies [rows, cols] between views of any dtypes and strides, converting.
    virtual void copy(const TensorView& target, const TensorView& source) = 0;
    /// y[t, :] += bias. bias: [cols] compute_dtype().
    virtual void add_bias(const TensorView& y, const void* bias) = 0;
    /// y += x, of one shape.
    virtual void add(const TensorView& y, const TensorView& x) = 0;
    /// y[i, :] = scale table[ids[i], :], or zeros where ids[i] is negative; table may be bf16 or
    /// fp32. Also gathers rows of activations.
    virtual void gather_rows(const TensorView& y, const TensorView& table, const std::int32_t* ids,
                             float scale) = 0;
    /// y[ids[i], :] = x[i, :], all other rows of y are set to 0. ids ascend.
    virtual void scatter_rows(const TensorView& y, const TensorView& x,
                              const std::int32_t* ids) = 0;
    /// The matrix of base/random_matrix.h: equal bits on every backend. target: f32 or bf16.
    virtual void fill_random(const TensorView& target, const RandomMatrix& random) = 0;
    virtual void draw_uniform(const DrawUniform& op) = 0;
    /// target = the effective weights of base/quantized.h, rounded to its type: equal bits on every
    /// backend.
    virtual void dequantize(const TensorView& target, const QuantizedMatrix& weights) = 0;
    virtual void gemm(const Gemm& op) = 0;
    virtual void quantize_rows(const QuantizeRows& op) = 0;
    /// to[j, i] = from[i, j]: codes alone.
    virtual void transpose_codes(const Fp8Rows& to, const Fp8Rows& from) = 0;
    virtual void gemm_fp8(const GemmFp8& op) = 0;
    /// Of many linears at once: on CUDA one kernel.
    virtual void lora_pack(std::span<const LoraPack> ops) = 0;
    virtual void lora_shrink(const LoraShrink& op) = 0;
    virtual void lora_expand(const LoraExpand& op) = 0;
    virtual void lora_backward(const LoraBackward& op) = 0;
    /// lora_backward of linears that read the same X, with the same `rows`, at most 3; quicker in
    /// one call where their dY lie side by side.
    virtual void lora_backward_group(std::span<const LoraBackward> ops) {
        for (const LoraBackward& op : ops) lora_backward(op);
    }
    virtual void lora_grad_a(const LoraGradA& op) = 0;
    /// Whether an operator is quicker than its parts one by one.
    virtual bool takes_at_once(const LoraGatedForward& /*op*/) const { return false; }
    virtual bool takes_at_once(const LoraGatedBackward& /*op*/) const { return false; }
    virtual void lora_gated_forward(const LoraGatedForward& op) {
        swiglu(op.product);
        lora_shrink({op.product.h, {&op.down, 1}, op.rows, op.again});
    }
    virtual void lora_gated_backward(const LoraGatedBackward& op) {
        if (op.adds_down) {
            lora_expand_backward({op.product.dh, {&op.down, 1}, op.gate.rows, true});
        }
        swiglu_backward(op.product);
        lora_grad_a({op.product.h, {&op.down, 1}, op.gate.rows});
        const LoraBackward both[] = {op.gate, op.up};
        lora_backward_group(both);
    }
    virtual void lora_expand_backward(const LoraExpandBackward& op) = 0;
    /// S[t, column .. column + rank) = scale * A[:, ids[t]], or 0 where ids[t] is negative, for the
    /// slot that owns row t; other columns of rows in segments are set to 0.
    virtual void lora_gather_a(const LoraIds& op) = 0;
    /// grad_a[:, ids[t]] += dS_t but for `still`, row by row: how rows are cut into calls changes
    /// no bit.
    virtual void lora_scatter_a(const LoraIds& op) = 0;
    virtual void dora_norms(const DoraNorms& op) = 0;
    virtual void dora_scale(const DoraScale& op) = 0;
    virtual void dora_grad_magnitude(const DoraGradMagnitude& op) = 0;
    virtual void vera_product(const VeraProduct& op) = 0;
    virtual void vera_gradients(const VeraGradients& op) = 0;
    virtual void drop_rows(const DropRows& op) = 0;
    virtual void add_noise(const AddNoise& op) = 0;
    virtual void rms_norm(const RmsNorm& op) = 0;
    virtual void rms_norm_backward(const RmsNormBackward& op) = 0;
    virtual void rope(const Rope& op) = 0;
    virtual void attention(const Attention& op) = 0;
    virtual void attention_backward(const AttentionBackward& op) = 0;
    virtual void cached_attention(const CachedAttention& op) = 0;
    virtual void swiglu(const SwiGlu& op) = 0;
    virtual void swiglu_backward(const SwiGluBackward& op) = 0;
    virtual void xielu(const Xielu& op) = 0;
    virtual void xielu_backward(const XieluBackward& op) = 0;
    virtual void route(const Route& op) = 0;
    virtual void combine_experts(const CombineExperts& op) = 0;
    virtual void weigh_experts(const WeighExperts& op) = 0;
    virtual void weigh_rows(const WeighRows& op) = 0;
    virtual void narrow_experts(const ExpertLora& op) = 0;
    virtual void widen_experts(const ExpertLora& op) = 0;
    virtual void add_expert_grads(const ExpertLora& op) = 0;
    virtual void route_backward(const RouteBackward& op) = 0;
    virtual void soft_cap(const SoftCap& op) = 0;
    virtual void cross_entropy(const CrossEntropy& op) = 0;
    /// Writes the own lane's statistics; with `of.gradient` the logits are of no other use then.
    virtual void shard_statistics(const ShardedCrossEntropy& op) = 0;
    /// After shard_statistics of all lanes, whose statistics have been gathered.
    virtual void sharded_cross_entropy(const ShardedCrossEntropy& op) = 0;
    /// *result = sum of squares (fp64) of `count` floats.
    virtual void sum_squares(const float* values, std::int64_t count, double* result) = 0;
    virtual void adamw(const AdamW& op) = 0;
    virtual void adamw_8bit(const AdamW8bit& op) = 0;
    virtual void move_doubles(const MoveDoubles& op) = 0;
};

}  // namespace loratrain
