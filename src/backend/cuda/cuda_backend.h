#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "kernels/activations.h"
#include "kernels/cross_entropy.h"
#include "kernels/grouped/expert_lora.h"
#include "kernels/lora/lora.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"

namespace loratrain {

class CudaAttention;
class GemmCublasLt;
class ReadbackPool;
class StagingRing;
class TableCache;

/// The backend of one GPU: kernels of kernels/, cuBLASLt and CudaAttention on one stream, in bf16
/// (sums in fp32) or fp32 (no TF32). Operators return when queued; download() and synchronize()
/// wait. Reproducible to the bit for equal sequences of shapes and equal choices of GEMM algorithms
/// (gemm_cublaslt.h).
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
    /// All device memory of this class and its parts.
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

    LORATRAIN_OPERATORS(LORATRAIN_OVERRIDE_OPERATOR)
    bool takes_at_once(const LoraGatedForward& op) const override;
    bool takes_at_once(const LoraGatedBackward& op) const override;
    bool takes_at_once(const ExpertGateUp& op) const override;
    bool takes_at_once(const ExpertDownBackward& op) const override;

  private:
    /// Reads the properties that kernels need, and refuses a GPU on which they do not run.
    void describe_device();
    void require_compute(std::initializer_list<const TensorView*> views) const;
    /// Device scratch of one operator, valid until the next call. Grows, and allocates nothing in
    /// steady state.
    void* reserve_workspace(std::size_t bytes);
    kernels::AdamWParams step_params(const AdamW& op);
    /// Points the row losses of `params` to scratch.
    void reserve_row_losses(kernels::CrossEntropyParams& params);
    /// Cuts `rows` rows at the ends of segments into tiles, and puts all tables of an operator on
    /// the device. `of_gradients`: the operator observes LoraSlot::begins_gradients.
    kernels::LoraTables lora_tables(std::span<const LoraTarget> targets, const LoraRows& lora,
                                    std::int64_t rows, std::int32_t tile_rows,
                                    bool of_gradients = false);
    /// The part of lora_tables() that depends on targets, slots and ranks alone. place_tables()
    /// must follow.
    kernels::LoraTables slot_tables(std::span<const LoraTarget> targets, bool of_gradients);
    /// The rest of lora_tables(); puts all tables on the device.
    void place_tables(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows,
                      kernels::LoraTables& tables);
    /// Sets swept_targets_ to `first` and `second`, with copies of their slots without dropout, for
    /// an operator that does not read X of these targets.
    void pass_without_dropout(const LoraTarget& first, const LoraTarget& second);
    /// The result is valid until the next call.
    kernels::LoraRowCuts row_cuts(const LoraRows& lora, std::int64_t rows);
    void add_pack(const LoraPack& op, kernels::LoraPackParams& params);
    void add_tiles(const LoraRows& lora, std::int64_t rows, std::int32_t tile_rows);
    /// Number of operators, from the first on, that run in one launch, because ExpertLora::wide is
    /// the same; 0: the first one runs by segment.
    std::size_t count_alike(ExpertLoras ops) const;
    /// Slices of operators on the device. The operators have the same ExpertLora::narrow, and the
    /// same number of columns of ExpertLora::wide.
    kernels::ExpertLoraSlices expert_slices(ExpertLoras ops);
    /// Makes fp8 codes of the rows of x; nothing if `codes` has none.
    kernels::ExpertCodes code_rows(const ExpertCodes& codes, const TensorView& x);
    /// Makes codes of the T k scaled rows of gradients, for products with the transposed codes.
    kernels::ExpertCodes code_gradients(const ExpertCodes& codes, const TensorView& x,
                                        const ExpertRoutes& routes, bool gathered);
    /// Adds dy_t . bias_e to d_weights[t, j]; nothing if there is no bias.
    void add_bias_gradients(const TensorView& dy, const float* bias, float* d_weights,
                            const ExpertRoutes& routes);
    /// Factors of the LoRA of `ops`, which a product with `outputs` columns adds. They lie behind
    /// the first `bytes` bytes of the operator's scratch.
    kernels::ExpertAddition add_factors(ExpertLoras ops, std::int64_t outputs,
                                        std::size_t bytes = 0);
    /// Writes into each tile how many tiles its slot has; returns the largest such number.
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
    std::vector<kernels::ExpertLoraSlice> expert_slices_;
    std::vector<std::int32_t> rank_sums_;
    std::vector<LoraTarget> swept_targets_;
    std::vector<LoraSlot> undropped_slots_;
    std::int64_t copy_rows_ = 0;
};

/// A clock of the stream, which outlives it.
std::unique_ptr<StreamClock> make_event_clock(cudaStream_t stream);

/// Parameters as kernels take them.
kernels::Matrix matrix_of(const TensorView& view);
kernels::Fp8Codes codes_of(const Fp8Rows& rows);
kernels::Gate gate_of(Activation activation);
kernels::SwiGluBackwardParams swiglu_backward_params(const SwiGluBackward& op);

}  // namespace loratrain
