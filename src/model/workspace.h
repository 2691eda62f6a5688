#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/tensor.h"
#include "model/weight_view.h"
#include "plan/memory/kind_memory.h"

namespace loratrain {

/// Scratch of a stage: matrices that are leased, and a check that leases do not overlap.

/// Whether Workspaces that are made from now on check leases of scratch: true in programs with
/// sanitizers or asserts, and where tests set it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
inline bool scratch_is_checked = true;
#else
inline bool scratch_is_checked = false;
#endif

/// Ranges of bytes of a Workspace that are leased at present.
class LeasedBytes {
  public:
    /// Leases the bytes of the view's rows. If some are leased already, throws an internal error
    /// that names both leases.
    void begin(const TensorView& view, const char* name);
    void end(const TensorView& view);

  private:
    struct Range {
        const char* first;
        const char* end;
        const char* name;
    };
    std::vector<Range> ranges_;
};

/// A matrix in scratch that is leased until the object ends. If leases are checked, no other lease
/// may have a byte of its rows meanwhile. Views of the matrix need no lease of their own; they must
/// not outlive the object.
class Scratch {
  public:
    Scratch() = default;
    /// A matrix in memory that is never leased.
    explicit Scratch(const TensorView& view) : view_(view) {}
    /// Without `leased` the lease is not checked.
    Scratch(const TensorView& view, const char* name, LeasedBytes* leased)
        : view_(view), leased_(leased) {
        if (leased_ != nullptr) leased_->begin(view_, name);
    }
    ~Scratch() { end(); }
    Scratch(Scratch&& other) noexcept
        : view_(std::exchange(other.view_, {})), leased_(std::exchange(other.leased_, nullptr)) {}
    Scratch& operator=(Scratch&& other) noexcept {
        if (this == &other) return *this;
        end();
        view_ = std::exchange(other.view_, {});
        leased_ = std::exchange(other.leased_, nullptr);
        return *this;
    }

    operator const TensorView&() const& { return view_; }
    operator const TensorView&() const&& = delete;
    const TensorView* operator->() const { return &view_; }
    const TensorView& view() const& { return view_; }

    /// Ends the lease early.
    void end() {
        if (leased_ != nullptr) leased_->end(view_);
        leased_ = nullptr;
    }
    /// Place of a later lease of the same size; ends this lease with the object.
    TensorView place() && { return view_; }

  private:
    TensorView view_;
    LeasedBytes* leased_ = nullptr;
};

/// The scratch of a stage, shared by all its layers and microbatches (memory_model.h names the
/// parts). What returns Scratch is leased.
class Workspace {
  public:
    Workspace(const ReplicaView& view, const StagePlan& stage, Backend& backend);

    /// [tokens, columns], with `pad` columns behind in each row.
    Scratch input(std::int64_t tokens, std::int64_t columns, std::int64_t pad = 0) const;
    Scratch gradient(std::int64_t tokens, std::int64_t columns, std::int64_t pad = 0) const;
    Scratch inner(std::int64_t tokens, std::int64_t columns) const;
    /// Gradient of a branch's output before its norm [tokens, H], rows of H + R columns.
    Scratch branch(std::int64_t tokens) const;
    /// Running gradient of the residual stream [tokens, H], rows of H + R columns.
    Scratch residual(std::int64_t tokens) const;
    /// gemm_matrix() of weights, leased where they are staged.
    Scratch matrix_of(const WeightView& weights, const MatrixShape& shape) const;
    /// The whole buffer of staged weights, as one row.
    Scratch staged() const;
    /// Scratch that only some kinds of sublayers use. lease(): `columns` of it from `first` on.
    const KindScratch& kinds() const { return kinds_; }
    Scratch lease(const ScratchMatrix& of, std::int64_t rows, std::int64_t first,
                  std::int64_t columns) const;

    /// Activations of one layer (LayerActivations); null unless the plan recomputes them. The same
    /// for each buffer of layers whose activations go to the host (offload.h). ActivationSlot says
    /// whose they are.
    void* layer() const { return layer_.data(); }
    void* offload(std::int32_t buffer) const;
    /// Buffer of e4m3 codes, which the op that writes a linear's input or output gradient fills for
    /// the GEMM (Operand); only with Plan::fp8_linears.
    Fp8Rows codes(std::int64_t tokens, std::int64_t columns) const {
        return {codes_.as<std::uint8_t>(), code_scales_.as<float>(), tokens, columns, columns};
    }
    // The head's own.
    void* logits() const { return logits_.data(); }
    /// ShardStatistics of a chunk's rows on every lane; null with one lane.
    void* statistics() const { return statistics_.data(); }
    /// part 0, 1, 2: three [chunk rows, H] matrices.
    TensorView head_rows(int part, std::int64_t rows) const;

  private:
    struct Part {
        Buffer buffer;
        const char* name = nullptr;
    };
    Scratch lease(const Part& part, std::int64_t rows, std::int64_t columns,
                  std::int64_t pad = 0) const;

    ReplicaView view_;
    Backend& backend_;
    DType dtype_;
    std::unique_ptr<LeasedBytes> leased_;  ///< null: leases are not checked
    Part input_;
    Part gradient_;
    Part residual_;
    Part inner_;
    Part branch_;
    Part staged_;
    KindScratch kinds_;
    std::vector<Buffer> of_kinds_;
    Buffer layer_;
    Buffer offload_;
    Buffer codes_;
    Buffer code_scales_;
    Buffer logits_;
    Buffer head_rows_;
    Buffer statistics_;
};

}  // namespace loratrain
