#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "kernels/cross_entropy.h"
#include "kernels/lora/lora.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/swiglu.h"

namespace loratrain {

class CudaAttention;
class GemmCublasLt;
class ReadbackPool;
class StagingRing;
class TableCache;

/// One GPU, one stream, computing in bf16 (fp32 sums) or fp32 (no TF32): kernels/, cuBLASLt and
/// CudaAttention. Ops return when queued; download() and synchronize() wait. Repeatable to the bit
/// for the same sequence of shapes and the same choice of GEMM algorithms (gemm_cublaslt.h).
class CudaBackend final : public Backend {
  public:
    /// `device` is a CUDA device number; `algorithm_file` as in gemm_cublaslt.h.
    CudaBackend(int device, DType compute, const std::string& algorithm_file);
    ~CudaBackend() override;
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    /// "cuda, NVIDIA H200, bf16, cuBLASLt 13.0.2"
    std::string description() const override;
    DType compute_dtype() const override { return compute_; }
    cudaStream_t stream() const { return stream_; }
    void* native_stream() const override { return stream_; }

    Buffer allocate(std::size_t bytes, const char* what) override;
    void prepare_scratch(const ScratchSizes& sizes) override;
    void before_stalls(const std::function<void()>& call) override;
    FirstUses first_uses() const override;
    void release(void* data, std::size_t bytes) override;
    /// Everything this class and its parts allocate on the device.
    MemoryUse memory() const override { return memory_; }
    void upload(void* target, const void* host_source, std::size_t bytes) override;
    void download(void* host_target, const void* source, std::size_t bytes) override;
    std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) override;
    void zero(void* target, std::size_t bytes) override;
    void synchronize() override;
    std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) override;
    std::unique_ptr<StreamClock> make_clock() override;
    std::unique_ptr<SideStream> make_side_stream() override;
    void push_range(const char* name, std::int64_t number) override;
    void pop_range() override;

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
    void lora_backward_group(std::span<const LoraBackward> ops) override;
    void lora_grad_a(const LoraGradA& op) override;
    bool takes_at_once(const LoraGatedForward& op) const override;
    void lora_gated_forward(const LoraGatedForward& op) override;
    bool takes_at_once(const LoraGatedBackward& op) const override;
    void lora_gated_backward(const LoraGatedBackward& op) override;
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
    /// Sets what the kernels go by, and refuses a GPU that they do not run on.
    void describe_device();
    void require_compute(std::initializer_list<const TensorView*> views) const;
    /// Device scratch of one op, valid until the next call; grows, so that a steady state allocates
    /// nothing.
    void* reserve_workspace(std::size_t bytes);
    kernels::AdamWParams step_params(const AdamW& op);
    /// Points them to scratch.
    void reserve_row_losses(kernels::CrossEntropyParams& params);
    /// Cuts `rows` rows at segment borders into tiles and puts all tables of an op on the device.
    /// `of_gradients`: it heeds LoraSlot::begins_gradients.
    kernels::LoraTables lora_tables(std::span<const LoraTarget> targets, const LoraRows& lora,
                                    std::int64_t rows, std::int32_t tile_rows,
                                    bool of_gradients = false);
    /// What they say of targets, slots and ranks alone; the slots wait for place_tables.
    kernels::LoraTables slot_tables(std::span<const LoraTarget> targets, bool of_gradients);
    /// The rest, and all on the device.
    void place_tables(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows,
                      kernels::LoraTables& tables);
    /// Puts them alone in swept_targets_, with copies of their slots whose dropout is off, for an
    /// op that does not read their X.
    void pass_without_dropout(const LoraTarget& first, const LoraTarget& second);
    /// Until the next call.
    kernels::LoraRowCuts row_cuts(const LoraRows& lora, std::int64_t rows);
    void add_pack(const LoraPack& op, kernels::LoraPackParams& params);
    void add_tiles(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows);
    /// Notes in each tile how many its slot has, of `slots`; returns the most.
    std::int32_t count_tiles_of_slots(std::size_t slots);

    int device_;
    DType compute_;
    std::string name_;
    int processors_ = 0;
    int shared_limit_ = 0;  ///< bytes that a block of threads may have
    cudaStream_t stream_ = nullptr;
    MemoryUse memory_;
    std::unique_ptr<StagingRing> transfers_;
    std::unique_ptr<StagingRing> tables_;
    std::unique_ptr<TableCache> lora_tables_;
    std::unique_ptr<ReadbackPool> readbacks_;
    Buffer gemm_workspace_;
    Buffer workspace_;
    std::unique_ptr<GemmCublasLt> gemm_;
    std::unique_ptr<CudaAttention> attention_;
    std::vector<kernels::LoraSlotEntry> slots_;
    std::vector<kernels::LoraSegmentEntry> segments_;
    std::vector<kernels::LoraTile> tiles_;
    std::vector<std::int32_t> tiles_of_slots_;
    std::vector<kernels::LoraPackItem> packed_;
    std::vector<std::int64_t> parts_;
    std::vector<std::int32_t> rank_sums_;
    std::vector<LoraTarget> swept_targets_;
    std::vector<LoraSlot> undropped_slots_;
    std::int64_t copy_rows_ = 0;
};

/// A clock of the stream, which outlives it.
std::unique_ptr<StreamClock> make_event_clock(cudaStream_t stream);

/// A view as the kernels see it.
kernels::Matrix matrix_of(const TensorView& view);
kernels::Fp8Codes codes_of(const Fp8Rows& rows);
kernels::Gate gate_of(Activation activation);
kernels::SwiGluBackwardParams swiglu_backward_params(const SwiGluBackward& op);

}  // namespace loratrain
