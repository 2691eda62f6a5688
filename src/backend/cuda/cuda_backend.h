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

    LORATRAIN_OPERATORS(LORATRAIN_OVERRIDE_OPERATOR)
    bool takes_at_once(const LoraGatedForward& op) const override;
    bool takes_at_once(const LoraGatedBackward& op) const override;
    bool takes_at_once(const ExpertGateUp& op) const override;
    bool takes_at_once(const ExpertDownBackward& op) const override;

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
