#include "model/lora_linear.h"

#include <algorithm>

namespace loratrain {

namespace {

/// `count` more columns right behind a view, in the same rows.
TensorView behind(const TensorView& view, std::int64_t first, std::int64_t count) {
    TensorView pad = view;
    pad.data = view.offset(0, view.cols + first);
    pad.cols = count;
    return pad;
}

TensorView widened(const TensorView& view, std::int64_t columns) {
    TensorView wide = view;
    wide.cols = columns;
    return wide;
}

float beta_of(const TensorView& residual) {
    return residual.data == nullptr ? 0.0F : 1.0F;
}

/// Columns that follow each other in the same rows as one.
std::vector<TensorView> joined(const std::array<TensorView, 3>& y, int count) {
    std::vector<TensorView> wide;
    for (int i = 0; i < count; ++i) {
        const TensorView& next = y[static_cast<std::size_t>(i)];
        if (!wide.empty() && are_side_by_side(wide.back(), next)) {
            wide.back().cols += next.cols;
        } else {
            wide.push_back(next);
        }
    }
    return wide;
}

}  // namespace

LoraLinear::LoraLinear(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
                       Backend& backend, const StageLanes& lanes)
    : view_(view),
      bank_(bank),
      workspace_(workspace),
      backend_(backend),
      dora_(bank, workspace, lanes, backend),
      vera_(bank, backend),
      pads_(view, bank, vera_, backend) {}

bool LoraLinear::has_lora(const Site& site) const {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
               return bank_.targets_group(adapter, site.layer, site.group);
           });
}

bool LoraLinear::has_vera(const Site& site) const {
    const auto& adapters = site.rows.adapters;
    return std::any_of(adapters.begin(), adapters.end(),
                       [&](AdapterId adapter) { return bank_.projects(adapter); });
}

bool LoraLinear::has_starts(const Site& site) const {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(),
                       [&](AdapterId adapter) { return bank_.has(adapter, TensorRole::start_a); });
}

void LoraLinear::subtract_start(const Site& site, int i, const TensorView& from,
                                const TensorView& to, const TensorView& s, Way way) {
    auto& [narrow, wide] = starts_;
    narrow.clear();
    wide.clear();
    for (const LoraSlot& slot : gather_slots(site, i)) {
        LoraSlot start;
        start.rank = slot.start_a == nullptr ? 0 : slot.rank;
        start.scale = -slot.scale;
        start.column = slot.column;
        start.a = way == Way::forward ? slot.start_a : slot.start_b;
        narrow.push_back(start);
        start.a = way == Way::forward ? slot.start_b : slot.start_a;
        wide.push_back(start);
    }
    const LoraTarget shrunk{narrow, s};
    const LoraTarget expanded{wide, s};
    backend_.lora_shrink({from, {&shrunk, 1}, site.rows.lora_rows()});
    backend_.lora_expand_backward({to, {&expanded, 1}, site.rows.lora_rows(), true});
}

const std::vector<LoraSlot>& LoraLinear::gather_slots(const Site& site, int i) {
    std::vector<LoraSlot>& slots = slots_[static_cast<std::size_t>(i)];
    const Linear linear = site.weights.shape.linears[static_cast<std::size_t>(i)];
    slots.clear();
    for (std::size_t s = 0; s < site.rows.adapters.size(); ++s) {
        vera_.make_factor(site.rows.adapters[s], site.layer, linear);
        LoraSlot slot = bank_.slot(site.rows.adapters[s], site.layer, linear);
        slot.column = site.rows.columns[s];
        if (site.rows.evaluation) slot.dropout = 0;
        slots.push_back(slot);
    }
    return slots;
}

void LoraLinear::gather_targets(const Site& site, const std::array<TensorView, 3>& s) {
    targets_.clear();
    for (int i = 0; i < site.weights.shape.count; ++i) {
        targets_.push_back({gather_slots(site, i), s[static_cast<std::size_t>(i)]});
    }
}

TensorView LoraLinear::prepare(const Site& site, bool with_pads) {
    GroupWeights& weights = site.weights;
    const TensorView m = gemm_matrix(weights.matrix.view, augmented_shape(view_, site.group),
                                     workspace_.staged(), backend_);
    if (weights.matrix.view.residence == WeightResidence::staged) weights.packed_width = -1;
    if (with_pads) pads_.pack(site, m);
    return m;
}

void LoraLinear::pack_all(std::span<const Site> sites) {
    for (const Site& site : sites) {
        const WeightView& matrix = site.weights.matrix.view;
        const bool stay = view_.plan.fp8_linears || matrix.residence == WeightResidence::resident;
        if (!site.rows.augmented || !stay || !has_lora(site)) continue;
        pads_.add(site,
                  view_.plan.fp8_linears
                      ? TensorView{}
                      : gemm_matrix(matrix, augmented_shape(view_, site.group), nullptr, backend_));
    }
    pads_.pack_added();
}

/// Of linear i among the outputs of the group.
std::int64_t LoraLinear::first_column(const Site& site, int i) const {
    std::int64_t column = 0;
    for (int before = 0; before < i; ++before) {
        const Linear linear = site.weights.shape.linears[static_cast<std::size_t>(before)];
        column += linear_shape(view_.lane_model, linear).out;
    }
    return column;
}

/// Those of linear i.
TensorView LoraLinear::columns_of(const Site& site, int i, const TensorView& dy) const {
    const Linear linear = site.weights.shape.linears[static_cast<std::size_t>(i)];
    return dy.col_range(first_column(site, i), linear_shape(view_.lane_model, linear).out);
}

/// W of linear i in the augmented matrix, or nothing.
TensorView LoraLinear::rows_of_linear(const Site& site, int i, const TensorView& m) const {
    const Linear linear = site.weights.shape.linears[static_cast<std::size_t>(i)];
    const LinearShape shape = linear_shape(view_.lane_model, linear);
    if (m.data == nullptr) return m;
    return m.row_range(first_column(site, i), shape.out).col_range(0, shape.in);
}

/// m: the augmented matrix, or nothing.
DoraLinear::Site LoraLinear::dora_site(const Site& site, int i, const TensorView& m) {
    const LinearGroupShape& group = site.weights.shape;
    const Linear linear = group.linears[static_cast<std::size_t>(i)];
    return {site.layer,
            linear,
            site.rows,
            gather_slots(site, i),
            rows_of_linear(site, i, m),
            site.group == LinearGroup::o || site.group == LinearGroup::down};
}

TensorView LoraLinear::pad_behind(const Site& site, const TensorView& x,
                                  const TensorView& s) const {
    if (!site.rows.augmented || site.rows.width == 0 || view_.plan.fp8_linears) return {};
    const TensorView pad = behind(x, 0, column_blocks(view_, site.group) * site.rows.width);
    return s.data == pad.data ? TensorView{} : pad;
}

void LoraLinear::forward(const Site& site, const TensorView& x, const std::array<TensorView, 3>& y,
                         const std::array<TensorView, 3>& s, const TensorView& residual,
                         Codes codes, Sums sums) {
    const GroupWeights& weights = site.weights;
    const bool lora = has_lora(site);
    const std::int64_t width = lora && site.rows.augmented ? site.rows.width : 0;
    if (lora) gather_targets(site, s);
    if (lora && sums == Sums::to_make) {
        backend_.lora_shrink({x, targets_, site.rows.lora_rows(), pad_behind(site, x, s[0])});
    }
    const bool dora = has_dora(site);
    const bool adds = residual.data != nullptr;
    TensorView added = residual;
    if (dora && adds) {
        backend_.copy(y[0], residual);
        dora_.keep_sums(dora_site(site, 0, {}), y[0]);
        added = y[0];
    }
    TensorView m;
    if (view_.plan.fp8_linears) {
        multiply_fp8(site, x, y, s, width, added, codes);
    } else {
        m = multiply(site, x, y, s, width, added);
    }
    const bool starts = has_starts(site);
    for (int i = 0; i < weights.shape.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (lora && !site.rows.augmented) {
            backend_.lora_expand({targets_[at], y[at], site.rows.lora_rows()});
        }
        if (dora) {
            dora_.forward(dora_site(site, i, m), x, s[at], y[at], adds);
        }
        if (starts) {
            const std::int64_t columns = site.rows.width;
            subtract_start(site, i, x, y[at], workspace_.gradient(x.rows, columns, columns),
                           Way::forward);
        }
        if (weights.bias[at].data() != nullptr) backend_.add_bias(y[at], weights.bias[at].data());
    }
}

TensorView LoraLinear::multiply(const Site& site, const TensorView& x,
                                const std::array<TensorView, 3>& y,
                                const std::array<TensorView, 3>& s, std::int64_t width,
                                const TensorView& residual) {
    const TensorView m = prepare(site, width > 0);
    const std::int64_t blocks = column_blocks(view_, site.group);
    const TensorView with_s = widened(x, x.cols + blocks * width);
    std::int64_t row = 0;
    if (blocks > 1) {
        for (const TensorView& wide : joined(y, site.weights.shape.count)) {
            multiply_rows(with_s, m.row_range(row, wide.cols), wide, residual);
            row += wide.cols;
        }
        return m;
    }
    for (int i = 0; i < site.weights.shape.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (width > 0 && i > 0) backend_.copy(behind(x, 0, width), s[at].col_range(0, width));
        multiply_rows(with_s, m.row_range(row, y[at].cols), y[at], residual);
        row += y[at].cols;
    }
    return m;
}

void LoraLinear::multiply_rows(const TensorView& x, const TensorView& m, const TensorView& y,
                               const TensorView& residual) {
    Gemm op;
    op.a = x;
    op.b = m.col_range(0, x.cols);
    op.c = y;
    op.transpose_b = true;
    op.beta = beta_of(residual);
    op.d = residual;
    backend_.gemm(op);
}

RowCodes LoraLinear::coding_of_input(std::int64_t tokens, std::int64_t columns) const {
    if (!view_.plan.fp8_linears) return {};
    return {workspace_.codes(tokens, columns)};
}

RowCodes LoraLinear::coding_of_gradient(const Site& site, std::int64_t tokens) const {
    if (!view_.plan.fp8_linears) return {};
    return {workspace_.codes(tokens, site.weights.shape.out), site.weights.fp8.codes.scales};
}

void LoraLinear::multiply_fp8(const Site& site, const TensorView& x,
                              const std::array<TensorView, 3>& y,
                              const std::array<TensorView, 3>& s, std::int64_t width,
                              const TensorView& residual, Codes codes) {
    const Fp8Weights& weights = site.weights.fp8;
    if (width > 0) {
        const TensorView b = weights.b_pad.col_range(0, width);
        pads_.pack(site, {});
        std::int64_t row = 0;
        for (int i = 0; i < site.weights.shape.count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            Gemm op;
            op.a = s[at].col_range(0, width);
            op.b = b.row_range(row, y[at].cols);
            op.c = y[at];
            op.transpose_b = true;
            op.beta = beta_of(residual);
            op.d = residual;
            backend_.gemm(op);
            row += y[at].cols;
        }
    }
    const RowCodes coding = coding_of_input(x.rows, x.cols);
    if (codes == Codes::to_make) backend_.quantize_rows({x, coding.column_scales, coding.to});
    std::int64_t row = 0;
    for (const TensorView& wide : joined(y, site.weights.shape.count)) {
        GemmFp8 op;
        op.a = coding.to;
        op.b = weights.codes.row_range(row, wide.cols);
        op.c = wide;
        op.beta = width > 0 ? 1.0F : beta_of(residual);
        if (width == 0) op.d = residual;
        op.fast = true;
        backend_.gemm_fp8(op);
        row += wide.cols;
    }
}

void LoraLinear::shrink(const Site& site, const TensorView& x, const std::array<TensorView, 3>& s) {
    if (!has_lora(site)) return;
    gather_targets(site, s);
    backend_.lora_shrink({x, targets_, site.rows.lora_rows()});
}

TensorView LoraLinear::ds_view(const Site& site, const TensorView& dy, int i) const {
    return behind(dy, i * site.rows.width, site.rows.width);
}

TensorView LoraLinear::ds_of_group(const Site& site, const TensorView& dy) {
    return behind(dy, 0, site.weights.shape.count * site.rows.width);
}

LoraBackward LoraLinear::pass_of(const Site& site, const TensorView& dy, int i) {
    LoraTarget& target = targets_[static_cast<std::size_t>(i)];
    target.s.cols = site.rows.width;
    return {columns_of(site, i, dy), target, ds_view(site, dy, i), site.rows.lora_rows()};
}

void LoraLinear::backward_b(const Site& site, const TensorView& dy,
                            const std::array<TensorView, 3>& s) {
    if (!has_lora(site)) return;
    const bool dora = has_dora(site);
    gather_targets(site, s);
    passes_.clear();
    for (int i = 0; i < site.weights.shape.count; ++i) {
        LoraBackward op = pass_of(site, dy, i);
        if (!dora) {
            passes_.push_back(op);
            continue;
        }
        op.dy = dora_.scaled(dora_site(site, i, {}), op.dy);
        backend_.lora_backward(op);
    }
    backend_.lora_backward_group(passes_);
    for (int i = 0; i < site.weights.shape.count && has_vera(site); ++i) {
        vera_.take_gradients(site.rows, site.layer,
                             site.weights.shape.linears[static_cast<std::size_t>(i)]);
    }
}

bool LoraLinear::leave_out_frozen(const Site& site) {
    bool any = false;
    for (int i = 0; i < site.weights.shape.count; ++i) {
        for (LoraSlot& slot : slots_[static_cast<std::size_t>(i)]) {
            if (slot.grad_a == nullptr) slot.rank = 0;
            any = any || slot.rank > 0;
        }
    }
    return any;
}

void LoraLinear::backward_a(const Site& site, const TensorView& x, const TensorView& dy,
                            const void* norm_weight, float weight_offset) {
    if (!has_lora(site)) return;
    std::array<TensorView, 3> ds;
    for (int i = 0; i < site.weights.shape.count; ++i) {
        ds[static_cast<std::size_t>(i)] = ds_view(site, dy, i);
    }
    gather_targets(site, ds);
    if (has_vera(site) && !leave_out_frozen(site)) return;
    backend_.lora_grad_a({x, targets_, site.rows.lora_rows(), norm_weight, weight_offset});
}

bool LoraLinear::has_dora(const Site& site) const {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
               return bank_.has(adapter, TensorRole::magnitude) &&
                      bank_.targets_group(adapter, site.layer, site.group);
           });
}

bool LoraLinear::backward_m(const Site& site, int i, const TensorView& x, const TensorView& dy,
                            const std::array<TensorView, 3>& s, const TensorView& dropped,
                            const TensorView& y) {
    if (!has_dora(site)) return false;
    DoraLinear::Site of = dora_site(site, i, {});
    const bool product = DoraLinear::needs_product(of, y);
    if (product) of.w = rows_of_linear(site, i, prepare(site, false));
    dora_.backward_m(of, x, columns_of(site, i, dy), s[static_cast<std::size_t>(i)], dropped, y);
    return product;
}

bool LoraLinear::in_one_gemm(const Site& site) const {
    return has_lora(site) && site.rows.augmented && !site.rows.has_dropout;
}

void LoraLinear::backward_x(const Site& site, const TensorView& dy, const TensorView& dx,
                            Codes codes, Factors factors) {
    const GroupWeights& weights = site.weights;
    const bool lora = has_lora(site) && factors == Factors::multiplied;
    const bool one_gemm = lora && in_one_gemm(site);
    const std::int64_t pads = one_gemm ? weights.shape.count * site.rows.width : 0;
    if (lora && !one_gemm) {
        std::array<TensorView, 3> ds;
        for (int i = 0; i < weights.shape.count; ++i) {
            ds[static_cast<std::size_t>(i)] = ds_view(site, dy, i);
        }
        gather_targets(site, ds);
        backend_.lora_expand_backward({dx, targets_, site.rows.lora_rows(), false});
    }
    const bool dora = has_dora(site);
    for (int i = 0; i < weights.shape.count && dora; ++i) {
        dora_.before_x(dora_site(site, i, {}), columns_of(site, i, dy));
    }
    TensorView m;
    if (view_.plan.fp8_linears) {
        multiply_back_fp8(site, dy, dx, pads, lora && !one_gemm, codes);
    } else {
        m = multiply_back(site, dy, dx, pads, lora && !one_gemm);
    }
    for (int i = 0; i < weights.shape.count && dora; ++i) {
        dora_.after_x(dora_site(site, i, m), columns_of(site, i, dy), dx);
    }
    const std::int64_t columns = site.rows.width;
    for (int i = 0; i < weights.shape.count && has_starts(site); ++i) {
        subtract_start(site, i, columns_of(site, i, dy), dx,
                       workspace_.input(dy.rows, columns, columns), Way::backward);
    }
}

TensorView LoraLinear::multiply_back(const Site& site, const TensorView& dy, const TensorView& dx,
                                     std::int64_t pads, bool accumulate) {
    const TensorView m = prepare(site, pads > 0);
    Gemm op;
    op.a = widened(dy, dy.cols + pads);
    op.b = m.row_range(0, dy.cols + pads).col_range(0, dx.cols);
    op.c = dx;
    op.beta = accumulate ? 1.0F : 0.0F;
    backend_.gemm(op);
    return m;
}

void LoraLinear::multiply_back_fp8(const Site& site, const TensorView& dy, const TensorView& dx,
                                   std::int64_t pads, bool accumulate, Codes codes) {
    const Fp8Weights& weights = site.weights.fp8;
    if (pads > 0) {
        const TensorView a = weights.a_pad.row_range(0, pads);
        pads_.pack(site, {});
        Gemm op;
        op.a = behind(dy, 0, pads);
        op.b = a;
        op.c = dx;
        backend_.gemm(op);
    }
    const RowCodes coding = coding_of_gradient(site, dy.rows);
    if (codes == Codes::to_make) backend_.quantize_rows({dy, coding.column_scales, coding.to});
    GemmFp8 op;
    op.a = coding.to;
    op.b = weights.transposed;
    if (op.b.codes == nullptr) {
        op.b.codes = static_cast<std::uint8_t*>(workspace_.staged());
        backend_.transpose_codes(op.b, weights.codes);
    }
    op.c = dx;
    op.beta = accumulate || pads > 0 ? 1.0F : 0.0F;
    backend_.gemm_fp8(op);
}

}  // namespace loratrain
