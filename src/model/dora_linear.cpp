#include "model/dora_linear.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

const LoraSlot& slot_of(const DoraLinear::Site& site, const LoraSegment& segment) {
    return site.slots[static_cast<std::size_t>(segment.slot)];
}

TensorView rows_of(const LoraSegment& segment, const TensorView& view) {
    return view.row_range(segment.begin, segment.end - segment.begin);
}

template <class Visit>
void for_each_magnitude(const DoraLinear::Site& site, const Visit& visit) {
    for (const LoraSegment& segment : site.rows.segments) {
        const LoraSlot& slot = slot_of(site, segment);
        if (slot.rank > 0 && slot.magnitude != nullptr && segment.begin < segment.end) {
            visit(segment, slot);
        }
    }
}

}  // namespace

bool DoraLinear::needs_product(const Site& site, const TensorView& y) {
    bool any = false;
    for_each_magnitude(site, [&](const LoraSegment&, const LoraSlot& slot) {
        any = any || slot.dropout > 0 || y.data == nullptr;
    });
    return any;
}

void DoraLinear::update_norms(const Site& site, const LoraSegment& segment) {
    const AdapterId adapter = site.rows.adapters[static_cast<std::size_t>(segment.slot)];
    const std::int64_t version = bank_.version(adapter);
    const auto [known, added] = versions_.try_emplace({adapter, site.layer, site.linear}, version);
    if (!added && known->second == version) return;
    known->second = version;
    const LoraSlot& slot = slot_of(site, segment);
    backend_.dora_norms({site.w, slot, slot.squares});
    const bool in_is_cut = site.linear == Linear::o || site.linear == Linear::down;
    if (in_is_cut) lanes_.all->all_reduce(matrix(slot.squares, DType::f32, 1, site.w.rows));
}

void DoraLinear::drop(const Site& site, const LoraSegment& segment, const TensorView& y,
                      const TensorView& x, bool accumulate) {
    const PackedRows& rows = site.rows.packed;
    backend_.drop_rows({y, x, slot_of(site, segment), rows.positions + segment.begin,
                        rows.sample_ids + segment.begin, segment.step, accumulate});
}

void DoraLinear::product(const Site& site, const LoraSegment& segment, const TensorView& x,
                         const TensorView& s, const TensorView& dropped, const TensorView& v) {
    TensorView input = rows_of(segment, x);
    if (slot_of(site, segment).dropout > 0) {
        input = rows_of(segment, dropped);
        drop(site, segment, input, rows_of(segment, x), false);
    }
    Gemm op;
    op.a = input;
    op.b = site.w;
    op.c = v;
    op.transpose_b = true;
    backend_.gemm(op);
    const LoraSegment here{segment.slot, 0, v.rows, segment.step};
    PackedRows rows = site.rows.packed;
    rows.positions += segment.begin;
    rows.sample_ids += segment.begin;
    backend_.lora_expand({{site.slots, rows_of(segment, s)}, v, {{&here, 1}, rows}});
}

void DoraLinear::keep_sums(const Site& site, const TensorView& y) {
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        if (slot.dropout > 0) return;
        const TensorView rows = rows_of(segment, y);
        LORATRAIN_CHECK(rows.ld == rows.cols, "sums with gaps between rows");
        backend_.copy(kept_rows(segment, y), rows);
        backend_.zero(rows.data,
                      static_cast<std::size_t>(rows.rows * rows.cols) * size_of(rows.dtype));
    });
}

TensorView DoraLinear::kept_rows(const LoraSegment& segment, const TensorView& like) const {
    return rows_of(segment, workspace_.gradient(like.rows, like.cols, like.cols));
}

void DoraLinear::forward(const Site& site, const TensorView& x, const TensorView& s,
                         const TensorView& y, bool kept) {
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        update_norms(site, segment);
        const TensorView rows = rows_of(segment, y);
        const TensorView other = kept_rows(segment, y);
        if (slot.dropout > 0) {
            product(site, segment, x, s, workspace_.inner(x.rows, x.cols), other);
            backend_.dora_scale({rows, other, slot.magnitude, slot.squares, true, true});
        } else if (kept) {
            backend_.dora_scale({other, rows, slot.magnitude, slot.squares, false, true});
            backend_.copy(rows, other);
        } else {
            backend_.dora_scale({rows, rows, slot.magnitude, slot.squares, false, false});
        }
    });
}

TensorView DoraLinear::scaled(const Site& site, const TensorView& dy) {
    if (!needs_product(site, {})) return dy;
    const TensorView copy = site.alone ? workspace_.gradient(dy.rows, dy.cols, dy.cols)
                                       : workspace_.inner(dy.rows, dy.cols);
    backend_.copy(copy, dy);
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        const TensorView rows = rows_of(segment, copy);
        backend_.dora_scale({rows, rows, slot.magnitude, slot.squares, false, false});
    });
    return copy;
}

void DoraLinear::backward_m(const Site& site, const TensorView& x, const TensorView& dy,
                            const TensorView& s, const TensorView& dropped, const TensorView& y) {
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        if (slot.dropout == 0 && y.data != nullptr) {
            backend_.dora_grad_magnitude({rows_of(segment, dy), rows_of(segment, y), slot.squares,
                                          slot.grad_magnitude, slot.magnitude});
            return;
        }
        const TensorView v = rows_of(segment, workspace_.inner(x.rows, site.w.rows));
        product(site, segment, x, s, dropped, v);
        backend_.dora_grad_magnitude({rows_of(segment, dy), v, slot.squares, slot.grad_magnitude});
    });
}

void DoraLinear::before_x(const Site& site, const TensorView& dy) {
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        if (slot.dropout > 0) return;
        const TensorView rows = rows_of(segment, dy);
        if (site.alone) backend_.copy(kept_rows(segment, dy), rows);
        backend_.dora_scale({rows, rows, slot.magnitude, slot.squares, false, false});
    });
}

void DoraLinear::after_x(const Site& site, const TensorView& dy, const TensorView& dx) {
    for_each_magnitude(site, [&](const LoraSegment& segment, const LoraSlot& slot) {
        const TensorView own = rows_of(segment, dy);
        const TensorView other = site.alone ? kept_rows(segment, dy) : own;
        if (slot.dropout == 0) {
            if (site.alone) backend_.copy(own, other);
            return;
        }
        backend_.dora_scale({other, own, slot.magnitude, slot.squares, true, false});
        const TensorView product = rows_of(segment, workspace_.input(dy.rows, dx.cols, dx.cols));
        Gemm op;
        op.a = other;
        op.b = site.w;
        op.c = product;
        backend_.gemm(op);
        drop(site, segment, rows_of(segment, dx), product, true);
    });
}

}  // namespace loratrain
