#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"

namespace loratrain {

/// The backend of a CPU: fp32 on the processors of one rank.

/// Scratch for the threads of one operator; each thread has its own floats at local().
class ThreadScratch {
  public:
    ThreadScratch(float* data, std::int64_t stride) : data_(data), stride_(stride) {}
    float* local() const;

  private:
    float* data_;
    std::int64_t stride_;
};

/// Rows [begin, end) of a microbatch, which belong to one segment or (null) to none.
struct LoraRowBlock {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    const LoraSegment* segment = nullptr;
};

/// Query rows [begin, end) of one sample for one head; the sample's rows begin at `first`.
struct AttentionBlock {
    std::int64_t first = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t head = 0;
};

/// Operators in fp32, with OpenMP and a GEMM library (gemm.h); a source file for each family.
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
    /// Scratch valid until the next call. Grows, and allocates nothing in steady state.
    ThreadScratch reserve_scratch(std::int64_t floats_per_thread);
    /// Makes room for losses and guesses of `rows` rows.
    void reserve_row_losses(std::int64_t rows);
    /// Adds the rows' losses and guesses to the sums of `op`, in row order.
    void add_row_losses(const CrossEntropy& op);
    /// Makes the codes of the matrix that an operator has written, if `codes` asks for them.
    void make_codes(const RowCodes& codes, const TensorView& written);
    /// Cuts [0, rows) at the ends of segments and into blocks; fills lora_blocks_.
    void cut_lora_rows(const LoraRows& lora, std::int64_t rows);

    int threads_;
    MemoryUse memory_;
    Buffer scratch_;
    std::vector<LoraRowBlock> lora_blocks_;
    std::vector<AttentionBlock> attention_blocks_;
    std::vector<double> row_losses_;
    std::vector<char> row_wrong_;
};

/// Throws Error unless all views are fp32.
void require_f32(std::initializer_list<const TensorView*> views);

}  // namespace loratrain
