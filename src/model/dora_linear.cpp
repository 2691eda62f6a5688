#include <map>
#include <tuple>

#include "backend/rank_group.h"
#include "base/error.h"
#include "model/group_product.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

const LoraSlot& slot_of(const LinearSite& at, const LoraSegment& segment) {
    return at.slots[static_cast<std::size_t>(segment.slot)];
}

TensorView rows_of(const LoraSegment& segment, const TensorView& view) {
    return view.row_range(segment.begin, segment.end - segment.begin);
}

/// visit(segment, slot), without a slot where the adapter has no magnitudes on the linear.
template <class Visit>
void for_each_segment(const LinearSite& at, const Visit& visit) {
    for (const LoraSegment& segment : at.rows().segments) {
        const LoraSlot& slot = slot_of(at, segment);
        if (segment.begin == segment.end) continue;
        visit(segment, slot.rank > 0 && slot.magnitude != nullptr ? &slot : nullptr);
    }
}

template <class Visit>
void for_each_magnitude(const LinearSite& at, const Visit& visit) {
    for_each_segment(at, [&](const LoraSegment& segment, const LoraSlot* slot) {
        if (slot != nullptr) visit(segment, *slot);
    });
}

/// DoRA (Liu et al., 2024), for the rows of adapters that have magnitudes m [N] on a linear; n [N]
/// are the norms of the rows of W + scale B A, taken as constant, g = m / n, and x' = drop(x). As
/// PEFT (tuners/lora/dora.py), where a LoRA layer that drops its input drops that of the added
/// product with W too:
///
///   forward:   Y += (g - 1) ∘ V,  V = X' Wᵀ + S Bᵀ
///   backward:  dm += sum over rows of dY ∘ V / n,  dX += drop'((g - 1) ∘ dY W),
///              and LoRA's own gradients are those of g ∘ dY
///
/// Without dropout V is what LoRA's forward adds to Y, and dX that of g ∘ dY: rows are scaled, and
/// dm takes V from Y = g ∘ V where that was kept; else it needs a product of its own.
class DoraLinear : public LinearForm {
  public:
    explicit DoraLinear(const FormParts& parts)
        : LinearForm(parts.bank, TensorRole::magnitude),
          workspace_(parts.workspace),
          lanes_(parts.lanes),
          backend_(parts.backend) {}

    bool needs_input() const override { return true; }

    /// Rows drop their input, or y was not kept.
    bool reads_weights(const LinearSite& at, const TensorView& y) const override {
        bool any = false;
        for_each_magnitude(at, [&](const LoraSegment&, const LoraSlot& slot) {
            any = any || slot.dropout > 0 || y.data == nullptr;
        });
        return any;
    }

    /// Zeroes the rows that do not drop, so that the product alone is scaled. The others hold the
    /// residual.
    TensorView begin(const LinearSite& at, const TensorView& y,
                     const TensorView& residual) override {
        for_each_segment(at, [&](const LoraSegment& segment, const LoraSlot* slot) {
            const TensorView rows = rows_of(segment, y);
            if (slot == nullptr || slot->dropout > 0) {
                return backend_.copy({rows, rows_of(segment, residual)});
            }
            LORATRAIN_CHECK(rows.ld == rows.cols, "sums with gaps between rows");
            backend_.zero(rows.data,
                          static_cast<std::size_t>(rows.rows * rows.cols) * size_of(rows.dtype));
        });
        return y;
    }

    void forward(const LinearSite& at, const Forward& of) override {
        for_each_magnitude(at, [&](const LoraSegment& segment, const LoraSlot& slot) {
            update_norms(at, segment);
            const TensorView rows = rows_of(segment, of.y);
            if (slot.dropout > 0) {
                const Scratch v = workspace_.gradient(of.y.rows, of.y.cols);
                const Scratch dropped = workspace_.inner(of.x.rows, of.x.cols);
                multiply(at, segment, of.x, dropped, rows_of(segment, v));
                backend_.dora_scale(
                    {rows, rows_of(segment, v), slot.magnitude, slot.squares, true, rows});
                return;
            }
            if (of.kept.data != nullptr) {
                backend_.dora_scale(
                    {rows_of(segment, of.kept), rows, slot.magnitude, slot.squares});
            }
            const TensorView added =
                of.residual.data != nullptr ? rows_of(segment, of.residual) : TensorView{};
            backend_.dora_scale({rows, rows, slot.magnitude, slot.squares, false, added});
        });
    }

    /// g ∘ dY of the rows that have magnitudes: in place, or in a copy where dY is needed too.
    std::optional<Scratch> lora_gradient(const LinearSite& at, const TensorView& dy) override {
        if (scales_in_place(at)) {
            scale(at, dy);
            return {};
        }
        Scratch copy = is_cut_by_columns(at.linear) ? workspace_.gradient(dy.rows, dy.cols)
                                                    : workspace_.inner(dy.rows, dy.cols);
        for_each_segment(at, [&](const LoraSegment& segment, const LoraSlot* slot) {
            const TensorView rows = rows_of(segment, copy);
            const TensorView source = rows_of(segment, dy);
            if (slot == nullptr) return backend_.copy({rows, source});
            backend_.dora_scale({rows, source, slot->magnitude, slot->squares});
        });
        return copy;
    }

    void add_gradients(const LinearSite& at, const Backward& of) override {
        for_each_magnitude(at, [&](const LoraSegment& segment, const LoraSlot& slot) {
            const TensorView dy = rows_of(segment, of.dy);
            const int scaled = scales_in_place(at) ? 1 : 0;
            if (slot.dropout == 0 && of.y.data != nullptr) {
                backend_.dora_grad_magnitude({dy, rows_of(segment, of.y), slot.squares,
                                              slot.grad_magnitude, slot.magnitude, scaled + 1});
                return;
            }
            const TensorView v = rows_of(segment, of.spare);
            multiply(at, segment, of.x, of.dropped, v);
            backend_.dora_grad_magnitude(
                {dy, v, slot.squares, slot.grad_magnitude, slot.magnitude, scaled});
        });
    }

    /// Where lora_gradient() has not scaled dY already. dY of linears that are cut by columns is
    /// needed afterwards; that of others is in scratch.
    bool begin_dx(std::span<const LinearSite> linears, const TensorView& dy,
                  const TensorView& /*dx*/) override {
        for (const LinearSite& at : linears) {
            if (scales_in_place(at)) continue;
            const TensorView own = at.columns_of(dy);
            const bool keeps = is_cut_by_columns(at.linear);
            if (keeps) kept_ = workspace_.gradient(own.rows, own.cols);
            for_each_magnitude(at, [&](const LoraSegment& segment, const LoraSlot& slot) {
                if (slot.dropout > 0) return;
                const TensorView rows = rows_of(segment, own);
                if (keeps) backend_.copy({rows_of(segment, kept_), rows});
                backend_.dora_scale({rows, rows, slot.magnitude, slot.squares});
            });
        }
        return false;
    }

    void finish_dx(std::span<const LinearSite> linears, const TensorView& dy,
                   const TensorView& dx) override {
        for (const LinearSite& at : linears) {
            const bool keeps = is_cut_by_columns(at.linear);
            const TensorView whole = at.columns_of(dy);
            for_each_magnitude(at, [&](const LoraSegment& segment, const LoraSlot& slot) {
                const TensorView own = rows_of(segment, whole);
                const TensorView other = keeps ? rows_of(segment, kept_) : own;
                if (slot.dropout == 0) {
                    if (keeps) backend_.copy({own, other});
                    return;
                }
                backend_.dora_scale({other, own, slot.magnitude, slot.squares, true});
                const Scratch product = workspace_.input(dy.rows, dx.cols);
                const TensorView added = rows_of(segment, product);
                backend_.gemm({other, at.w, added});
                drop(at, segment, rows_of(segment, dx), added, true);
            });
        }
        kept_.end();
    }

  private:
    /// dY is in scratch and no row drops its input: then all that reads dY needs g ∘ dY.
    static bool scales_in_place(const LinearSite& at) {
        bool drops = false;
        for_each_magnitude(at, [&](const LoraSegment&, const LoraSlot& slot) {
            drops = drops || slot.dropout > 0;
        });
        return !drops && !is_cut_by_columns(at.linear);
    }

    void scale(const LinearSite& at, const TensorView& dy) {
        for_each_magnitude(at, [&](const LoraSegment& segment, const LoraSlot& slot) {
            const TensorView rows = rows_of(segment, dy);
            backend_.dora_scale({rows, rows, slot.magnitude, slot.squares});
        });
    }

    using Place = std::tuple<AdapterId, std::int32_t, Linear>;

    /// |W + scale B A|² per row over all lanes, where the adapter has changed since.
    void update_norms(const LinearSite& at, const LoraSegment& segment) {
        const AdapterId adapter = at.rows().adapters[static_cast<std::size_t>(segment.slot)];
        const std::int64_t version = bank_.version(adapter);
        const auto [known, added] =
            versions_.try_emplace({adapter, at.group->layer, at.linear}, version);
        if (!added && known->second == version) return;
        known->second = version;
        const LoraSlot& slot = slot_of(at, segment);
        backend_.dora_norms({at.w, slot, slot.squares});
        if (!is_cut_by_columns(at.linear)) return;
        lanes_.all->all_reduce(matrix(slot.squares, DType::f32, 1, at.w.rows));
    }

    /// V of a segment's rows; x' is written to `dropped`.
    void multiply(const LinearSite& at, const LoraSegment& segment, const TensorView& x,
                  const TensorView& dropped, const TensorView& v) {
        TensorView input = rows_of(segment, x);
        if (slot_of(at, segment).dropout > 0) {
            input = rows_of(segment, dropped);
            drop(at, segment, input, rows_of(segment, x), false);
        }
        multiply_rows(backend_, input, at.w, v, {});
        const LoraSegment here{segment.slot, 0, v.rows, segment.step};
        PackedRows rows = at.rows().packed;
        rows.positions += segment.begin;
        rows.sample_ids += segment.begin;
        backend_.lora_expand({{at.slots, rows_of(segment, at.s)}, v, {{&here, 1}, rows}});
    }

    void drop(const LinearSite& at, const LoraSegment& segment, const TensorView& y,
              const TensorView& x, bool accumulate) {
        const PackedRows& rows = at.rows().packed;
        backend_.drop_rows({y, x, slot_of(at, segment), rows.positions + segment.begin,
                            rows.sample_ids + segment.begin, segment.step, accumulate});
    }

    const Workspace& workspace_;
    StageLanes lanes_;
    Backend& backend_;
    Scratch kept_;                            ///< [T, N] between begin_dx() and finish_dx()
    std::map<Place, std::int64_t> versions_;  ///< of the norms (AdapterBank::version)
};

}  // namespace

std::unique_ptr<LinearForm> dora_linear(const FormParts& parts) {
    return std::make_unique<DoraLinear>(parts);
}

}  // namespace loratrain
