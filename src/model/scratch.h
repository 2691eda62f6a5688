#pragma once

#include <utility>
#include <vector>

#include "base/tensor.h"

namespace loratrain {

/// Scratch matrices that are leased from a workspace, and a check that leases do not overlap.

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

}  // namespace loratrain
