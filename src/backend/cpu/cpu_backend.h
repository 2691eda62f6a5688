#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"

namespace loratrain {

/// Memory for the threads of one op: each thread has `local()` floats to itself.
class ThreadScratch {
  public:
    ThreadScratch(float* data, std::int64_t stride) : data_(data), stride_(stride) {}
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

    LORATRAIN_OPERATORS(LORATRAIN_OVERRIDE_OPERATOR)

  private:
    /// Valid until the next call; grows, so that a steady state allocates nothing.
    ThreadScratch reserve_scratch(std::int64_t floats_per_thread);
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
