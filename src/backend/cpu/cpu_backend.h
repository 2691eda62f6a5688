#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"

namespace loratrain {

/// Memory for the threads of one op: each thread has `local()` floats to itself.
class Scratch {
  public:
    Scratch(float* data, std::int64_t stride) : data_(data), stride_(stride) {}
    float* local() const;

  private:
    float* data_;
    std::int64_t stride_;
};

/// Rows [begin, end) of a microbatch, of one segment or (segment null) of none.
struct LoraRowBlock {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    const LoraSegment* segment = nullptr;
};

/// Query rows [begin, end) of one sample for one head; sample rows start at `first`.
struct AttentionBlock {
    std::int64_t first = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t head = 0;
};

/// fp32 on the cores of one rank: OpenMP, a GEMM library (gemm.h), one file per op family.
class CpuBackend : public Backend {
  public:
    explicit CpuBackend(int threads);

    std::string description() const override;
    DType compute_dtype() const override { return DType::f32; }

    Buffer allocate(std::size_t bytes, const char* what) override;
    void release(void* data, std::size_t bytes) override;
    MemoryUse memory() const override { return memory_; }
    void upload(void* target, const void* host_source, std::size_t bytes) override;
    void download(void* host_target, const void* source, std::size_t bytes) override;
    std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) override;
    void zero(void* target, std::size_t bytes) override;
    void synchronize() override {}
    std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) override;
    std::unique_ptr<StreamClock> make_clock() override;

    void copy(const TensorView& target, const TensorView& source) override;
    void add_bias(const TensorView& y, const void* bias) override;
    void add(const TensorView& y, const TensorView& x) override;
    void gather_rows(const TensorView& y, const TensorView& table, const std::int32_t* ids,
                     float scale) override;
    void scatter_rows(const TensorView& y, const TensorView& x, const std::int32_t* ids) override;
    void fill_random(const TensorView& target, const RandomMatrix& random) override;
    void draw_uniform(const DrawUniform& op) override;
    void dequantize(const TensorView& target, const QuantizedMatrix& weights) override;
    void gemm(const Gemm& op) override;
    void quantize_rows(const QuantizeRows& op) override;
    void transpose_codes(const Fp8Rows& to, const Fp8Rows& from) override;
    void gemm_fp8(const GemmFp8& op) override;
    void lora_pack(std::span<const LoraPack> ops) override;
    void lora_shrink(const LoraShrink& op) override;
    void lora_expand(const LoraExpand& op) override;
    void lora_backward(const LoraBackward& op) override;
    void lora_grad_a(const LoraGradA& op) override;
    void lora_expand_backward(const LoraExpandBackward& op) override;
    void lora_gather_a(const LoraIds& op) override;
    void lora_scatter_a(const LoraIds& op) override;
    void dora_norms(const DoraNorms& op) override;
    void dora_scale(const DoraScale& op) override;
    void dora_grad_magnitude(const DoraGradMagnitude& op) override;
    void vera_product(const VeraProduct& op) override;
    void vera_gradients(const VeraGradients& op) override;
    void drop_rows(const DropRows& op) override;
    void add_noise(const AddNoise& op) override;
    void rms_norm(const RmsNorm& op) override;
    void rms_norm_backward(const RmsNormBackward& op) override;
    void rope(const Rope& op) override;
    void attention(const Attention& op) override;
    void attention_backward(const AttentionBackward& op) override;
    void cached_attention(const CachedAttention& op) override;
    void swiglu(const SwiGlu& op) override;
    void swiglu_backward(const SwiGluBackward& op) override;
    void xielu(const Xielu& op) override;
    void xielu_backward(const XieluBackward& op) override;
    void route(const Route& op) override;
    void combine_experts(const CombineExperts& op) override;
    void weigh_experts(const WeighExperts& op) override;
    void weigh_rows(const WeighRows& op) override;
    void narrow_experts(const ExpertLora& op) override;
    void widen_experts(const ExpertLora& op) override;
    void add_expert_grads(const ExpertLora& op) override;
    void route_backward(const RouteBackward& op) override;
    void soft_cap(const SoftCap& op) override;
    void cross_entropy(const CrossEntropy& op) override;
    void shard_statistics(const ShardedCrossEntropy& op) override;
    void sharded_cross_entropy(const ShardedCrossEntropy& op) override;
    void sum_squares(const float* values, std::int64_t count, double* result) override;
    void adamw(const AdamW& op) override;
    void adamw_8bit(const AdamW8bit& op) override;
    void move_doubles(const MoveDoubles& op) override;

  private:
    /// Valid until the next call; grows, so that a steady state allocates nothing.
    Scratch reserve_scratch(std::int64_t floats_per_thread);
    /// Room for the losses and guesses of so many rows.
    void reserve_row_losses(std::int64_t rows);
    /// Adds them to the op's sums, row after row.
    void add_row_losses(const CrossEntropy& op);
    /// Of what an op has written, where they are wanted.
    void make_codes(const RowCodes& codes, const TensorView& written);
    /// Cuts [0, rows) at segment borders and into blocks; fills lora_blocks_.
    void cut_lora_rows(const LoraRows& lora, std::int64_t rows);

    int threads_;
    MemoryUse memory_;
    Buffer scratch_;
    std::vector<LoraRowBlock> lora_blocks_;
    std::vector<AttentionBlock> attention_blocks_;
    std::vector<double> row_losses_;
    std::vector<char> row_wrong_;
};

/// The CPU backend computes in fp32 only.
void require_f32(std::initializer_list<const TensorView*> views);

}  // namespace loratrain
