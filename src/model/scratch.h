#pragma once

#include <utility>
#include <vector>

#include "base/tensor.h"

namespace loratrain {

/// Whether leases of scratch are checked, by Workspaces made from then on: in programs with
/// sanitizers or asserts, and where tests set it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
inline bool scratch_is_checked = true;
#else
inline bool scratch_is_checked = false;
#endif

/// The bytes of a Workspace that are leased now.
class LeasedBytes {
  public:
    /// An internal error that names both where some bytes of the view's rows are leased already.
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

/// A matrix in scratch, leased until the object ends: where leases are checked no other has a byte
/// of its rows meanwhile. Views of it are taken from it and need no lease; they must not outlive
/// it.
class Scratch {
  public:
    Scratch() = default;
    /// Of memory that nobody leases.
    explicit Scratch(const TensorView& view) : view_(view) {}
    /// Without `leased` it is not checked.
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

    /// Before the object does.
    void end() {
        if (leased_ != nullptr) leased_->end(view_);
        leased_ = nullptr;
    }
    /// Where a later lease of the same size will be.
    TensorView place() && { return view_; }

  private:
    TensorView view_;
    LeasedBytes* leased_ = nullptr;
};

}  // namespace loratrain
