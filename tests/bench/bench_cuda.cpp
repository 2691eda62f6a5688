#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/text.h"
#include "gpu_time.h"

// Times the operators of the CUDA backend in bf16 at the shapes of an 8B model, and the LoRA linear
// of 4 adapters of rank 16 against the frozen one. Each figure is the best of several batches of
// calls; operands larger than the L2 cache.
// bench_cuda [tokens [ranks|one|four|gated [TEXT]]]
//   ranks: adapters of ranks 8 to 128 in a microbatch alone; one: one adapter of rank 16 on a model
//   of 1.1B; four: four on one of 8B; gated: gradients around an MLP's activation; TEXT: of a
//   case's name, as "-> 14336 r 64"

namespace loratrain {
namespace {

constexpr std::int64_t hidden = 4096;
constexpr std::int64_t inter = 14336;
constexpr std::int64_t vocabulary = 128256;
constexpr std::int64_t head_dim = 128;
constexpr std::int64_t heads = 32;
constexpr std::int64_t kv_heads = 8;
constexpr std::int64_t sample_tokens = 2048;
constexpr std::int64_t adapters = 4;
constexpr std::int32_t rank = 16;
constexpr std::int64_t pad = adapters * rank;

class Bench {
  public:
    explicit Bench(std::int64_t tokens)
        : backend_(make_backend("cuda", {1, 0, DType::bf16})), tokens_(tokens) {
        std::printf("%s, %ld tokens\n%-44s %10s %10s\n", backend_->description().c_str(),
                    static_cast<long>(tokens), "operator", "us", "rate");
        std::vector<std::int32_t> positions;
        std::vector<std::int32_t> sample_ids;
        for (std::int64_t row = 0; row < tokens; ++row) {
            if (row % sample_tokens == 0) offsets_.push_back(static_cast<std::int32_t>(row));
            positions.push_back(static_cast<std::int32_t>(row % sample_tokens));
            sample_ids.push_back(static_cast<std::int32_t>(row / sample_tokens));
        }
        offsets_.push_back(static_cast<std::int32_t>(tokens));
        const auto samples = static_cast<std::int64_t>(offsets_.size()) - 1;
        rows_ = {tokens,          samples,         ints(offsets_),
                 offsets_.data(), ints(positions), ints(sample_ids)};
        kept_ = buffers_.size();
        for (std::int32_t i = 0; i < adapters; ++i) {
            segments_.push_back({i, tokens * i / adapters, tokens * (i + 1) / adapters, 0});
        }
    }

    void run() {
        linear(hidden, hidden);
        linear(hidden, inter);
        linear(inter, hidden);
        shared_input(3, 0);
        shared_input(1, dropout_threshold(0.1));
        shared_input(3, dropout_threshold(0.1));
        expand(1, 0);
        expand(1, dropout_threshold(0.1));
        expand(3, dropout_threshold(0.1));
        for (const std::int32_t count : {4, 8, 16, 24, 32}) crossover(count);
        ranks();
        elementwise();
        attention();
        loss();
        optimizer();
    }

    /// 16 adapters by segment, of rank 16 or 8 to 128 or 128, and what the same costs in a pad.
    void ranks(const std::string& only = "") {
        const std::vector<std::vector<std::int32_t>> several{
            {16}, {8, 16, 32, 64, 128}, {64}, {128}};
        for (const auto& [in, out] : {std::pair(hidden, hidden), std::pair(hidden, 3 * hidden / 2),
                                      std::pair(hidden, inter), std::pair(inter, hidden)}) {
            for (const std::vector<std::int32_t>& in_turn : several) {
                const std::string name = name_of(in, out, in_turn);
                if (name.find(only) != std::string::npos) ranks_of(name, in, out, in_turn, 16);
            }
        }
    }

    /// Adapters of rank 16 on linears that read the same: [in, sum of out].
    void equal(const std::vector<std::pair<std::int64_t, std::int64_t>>& groups, std::int32_t count,
               const std::string& only) {
        for (const auto& [in, out] : groups) {
            const std::string name = name_of(in, out, {rank});
            if (name.find(only) != std::string::npos) ranks_of(name, in, out, {rank}, count);
        }
    }

    /// lora_gated_forward and lora_gated_backward of `count` adapters of rank 16, and their parts
    /// one by one.
    void gated(std::int64_t f, std::int32_t count, std::uint32_t dropout) {
        std::vector<std::vector<LoraSlot>> factors(3);
        std::vector<LoraSegment> segments;
        for (std::int32_t i = 0; i < count; ++i) {
            for (std::size_t linear = 0; linear < factors.size(); ++linear) {
                factors[linear].push_back({floats(rank * f, 0.02F), floats(rank * f, 0.02F),
                                           floats(rank * f), floats(rank * f), rank, 2.0F, i * rank,
                                           dropout, static_cast<std::uint64_t>(7 + i)});
            }
            segments.push_back({i, tokens_ * i / count, tokens_ * (i + 1) / count, 0});
        }
        const TensorView gate_up = random(tokens_, 2 * f);
        const TensorView d_gate_up = random(tokens_, 2 * f, 2 * pad);
        const TensorView dh = random(tokens_, f);
        const TensorView h = random(tokens_, f, pad);
        const TensorView s = random(tokens_, 5 * pad);
        const auto part = [&](std::int64_t i) { return s.col_range(i * pad, pad); };
        const TensorView dgate = d_gate_up.col_range(0, f);
        const TensorView dup = d_gate_up.col_range(f, f);
        const LoraRows lora{segments, rows_};
        const LoraGatedBackward op{
            {gate_up.col_range(0, f), gate_up.col_range(f, f), dh, dgate, dup, h},
            {factors[2], part(0)},
            {dgate, {factors[0], part(1)}, part(2), lora},
            {dup, {factors[1], part(3)}, part(4), lora},
            dropout > 0};
        const double moved = 10.0 * static_cast<double>(tokens_ * f);
        const std::string name = cat(count, " adapters, ", f, dropout > 0 ? ", dropout" : "");
        const LoraGatedForward forward{{op.product.gate, op.product.up, h}, op.down, lora, part(1)};
        bytes(name + ", gated forward", 0.6 * moved,
              [&] { backend_->lora_gated_forward(forward); });
        bytes(name + ", its parts", 0.6 * moved,
              [&] { backend_->Backend::lora_gated_forward(forward); });
        bytes(name + ", gated", moved, [&] { backend_->lora_gated_backward(op); });
        bytes(name + ", its parts", moved, [&] { backend_->Backend::lora_gated_backward(op); });
        buffers_.resize(kept_);
    }

  private:
    /// Seconds of one call: the best of several batches of about 20 ms.
    double time(const std::function<void()>& call) {
        call();
        backend_->synchronize();
        const double start = seconds_now();
        call();
        backend_->synchronize();
        const int calls = std::clamp(static_cast<int>(0.02 / (seconds_now() - start)), 2, 500);
        return best_seconds(*backend_, 5, calls, call);
    }
    double flops(const std::string& name, double work, const std::function<void()>& call) {
        const double seconds = time(call);
        std::printf("%-44s %10.1f %10.1f TFLOP/s\n", name.c_str(), seconds * 1e6,
                    work / seconds * 1e-12);
        return seconds;
    }
    double bytes(const std::string& name, double work, const std::function<void()>& call) {
        const double seconds = time(call);
        std::printf("%-44s %10.1f %10.1f GB/s\n", name.c_str(), seconds * 1e6,
                    work / seconds * 1e-9);
        return seconds;
    }

    void* allocate(std::size_t size) {
        buffers_.push_back(backend_->allocate(size, "bench"));
        return buffers_.back().data();
    }
    std::int32_t* ints(const std::vector<std::int32_t>& values) {
        void* data = allocate(values.size() * sizeof(std::int32_t));
        backend_->upload(data, values.data(), values.size() * sizeof(std::int32_t));
        return static_cast<std::int32_t*>(data);
    }
    float* floats(std::int64_t count, float size = 1.0F) {
        std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 20)));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = size * (uniform_float(++seed_, i) * 2.0F - 1.0F);
        }
        auto* data = static_cast<float*>(allocate(static_cast<std::size_t>(count) * sizeof(float)));
        for (std::int64_t at = 0; at < count; at += static_cast<std::int64_t>(values.size())) {
            const auto part =
                std::min<std::int64_t>(count - at, static_cast<std::int64_t>(values.size()));
            backend_->upload(data + at, values.data(), static_cast<std::size_t>(part) * 4);
        }
        return data;
    }
    TensorView random(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0) {
        const std::int64_t ld = cols + padding;
        const TensorView view{allocate(static_cast<std::size_t>(rows * ld) * 2), DType::bf16, rows,
                              cols, ld};
        const std::int64_t block = std::min<std::int64_t>(rows, 512);
        const TensorView source = matrix(floats(block * ld), DType::f32, block, ld);
        for (std::int64_t row = 0; row < rows; row += block) {
            const std::int64_t count = std::min(block, rows - row);
            TensorView target = view.row_range(row, count);
            target.cols = ld;
            backend_->copy({target, source.row_range(0, count)});
        }
        backend_->synchronize();
        buffers_.pop_back();
        return view;
    }
    std::vector<LoraSlot> slots(std::int64_t in, std::int64_t out, std::uint32_t dropout = 0) {
        std::vector<LoraSlot> result;
        for (std::int32_t i = 0; i < adapters; ++i) {
            result.push_back({floats(rank * in, 0.02F), floats(rank * out, 0.02F),
                              floats(rank * in), floats(rank * out), rank, 2.0F, i * rank, dropout,
                              static_cast<std::uint64_t>(7 + i)});
        }
        return result;
    }

    /// The frozen linear, then the same with adapters: two padded GEMMs and four skinny products.
    void linear(std::int64_t in, std::int64_t out) {
        const std::string shape = cat(in, " -> ", out);
        const TensorView x = random(tokens_, in, pad);
        const TensorView dy = random(tokens_, out, pad);
        const TensorView y = random(tokens_, out, pad);
        const TensorView dx = random(tokens_, in);
        const TensorView w = random(out + pad, in + pad);
        const TensorView weight = random(1, in);
        const auto widened = [](TensorView view, std::int64_t more) {
            view.cols += more;
            return view;
        };
        const auto pad_of = [](const TensorView& view) {
            return TensorView{view.offset(0, view.cols), view.dtype, view.rows, pad, view.ld};
        };
        const auto forward = [&](std::int64_t more) {
            backend_->gemm({widened(x, more), w.row_range(0, out).col_range(0, in + more), y, false,
                            true, 1.0F, 0.0F});
        };
        const auto backward = [&](std::int64_t more) {
            backend_->gemm({widened(dy, more), w.row_range(0, out + more).col_range(0, in), dx,
                            false, false, 1.0F, 0.0F});
        };
        const double work = 2.0 * static_cast<double>(tokens_) * static_cast<double>(in * out);
        flops(shape + " gemm forward", work, [&] { forward(0); });
        flops(shape + " padded gemm forward", work, [&] { forward(pad); });
        flops(shape + " gemm backward", work, [&] { backward(0); });
        flops(shape + " padded gemm backward", work, [&] { backward(pad); });
        const std::vector<LoraSlot> adapter = slots(in, out);
        const LoraRows lora{segments_, rows_};
        const std::vector<LoraTarget> s{{adapter, pad_of(x)}};
        const std::vector<LoraTarget> ds{{adapter, pad_of(dy)}};
        const double x_bytes = 2.0 * static_cast<double>(tokens_ * in);
        const double dy_bytes = 2.0 * static_cast<double>(tokens_ * out);
        double skinny = bytes(shape + " lora_shrink", x_bytes, [&] {
            backend_->lora_shrink({x, s, lora});
        });
        const TensorView again = random(tokens_, pad);
        bytes(shape + " lora_shrink, S written twice", x_bytes, [&] {
            backend_->lora_shrink({x, s, lora, again});
        });
        skinny += bytes(shape + " lora_backward", dy_bytes, [&] {
            backend_->lora_backward({dy, s[0], ds[0].s, lora});
        });
        skinny += bytes(shape + " lora_grad_a", x_bytes, [&] {
            backend_->lora_grad_a({x, ds, lora});
        });
        bytes(shape + " lora_grad_a, with a norm's weight", x_bytes, [&] {
            backend_->lora_grad_a({x, ds, lora, weight.data, 0.0F});
        });
        for (int i = 0; i < 2; ++i) {
            const double frozen = time([&] {
                forward(0);
                backward(0);
            });
            const double padded = time([&] {
                forward(pad);
                backward(pad);
            });
            const double whole = time([&] {
                backend_->lora_shrink({x, s, lora});
                forward(pad);
                backend_->lora_backward({dy, s[0], ds[0].s, lora});
                backward(pad);
                backend_->lora_grad_a({x, ds, lora});
            });
            std::printf("%-44s %10.1f us; frozen %.1f, padded %.1f, skinny %.1f; +%.1f%%\n",
                        (shape + " LoRA linear").c_str(), whole * 1e6, frozen * 1e6, padded * 1e6,
                        skinny * 1e6, (whole / frozen - 1.0) * 100.0);
        }
        const double pack_bytes = 6.0 * static_cast<double>(pad * (in + out));
        bytes(shape + " lora_pack", pack_bytes, [&] {
            const LoraPack op{adapter, w.row_range(0, out).col_range(in, pad),
                              w.row_range(out, pad).col_range(0, in)};
            backend_->lora_pack({&op, 1});
        });
        constexpr int many = 32;
        const std::vector<LoraPack> all(many, {adapter, w.row_range(0, out).col_range(in, pad),
                                               w.row_range(out, pad).col_range(0, in)});
        bytes(shape + " lora_pack of 32 such linears", many * pack_bytes,
              [&] { backend_->lora_pack(all); });
        buffers_.resize(kept_);
    }

    struct Targets {
        std::vector<std::vector<LoraSlot>> factors;
        std::vector<LoraTarget> targets;  ///< of `factors`
    };

    /// `count` linears of hidden x hidden whose S lie side by side in `s`.
    Targets make_targets(int count, const TensorView& s, std::uint32_t dropout) {
        Targets result;
        for (int i = 0; i < count; ++i) result.factors.push_back(slots(hidden, hidden, dropout));
        for (int i = 0; i < count; ++i) {
            result.targets.push_back(
                {result.factors[static_cast<std::size_t>(i)], s.col_range(i * pad, pad)});
        }
        return result;
    }

    void shared_input(int count, std::uint32_t dropout) {
        const std::string name =
            cat(count, count == 1 ? " target" : " targets", dropout > 0 ? ", dropout," : ",");
        const TensorView x = random(tokens_, hidden, pad);
        const TensorView s = random(tokens_, count * pad);
        const Targets operands = make_targets(count, s, dropout);
        const std::vector<LoraTarget>& targets = operands.targets;
        const LoraRows lora{segments_, rows_};
        const double x_bytes = 2.0 * static_cast<double>(tokens_ * hidden);
        bytes(name + " lora_shrink 4096", x_bytes, [&] {
            backend_->lora_shrink({x, targets, lora});
        });
        bytes(name + " lora_grad_a 4096", x_bytes, [&] {
            backend_->lora_grad_a({x, targets, lora});
        });
        buffers_.resize(kept_);
    }

    void expand(int count, std::uint32_t dropout) {
        const std::string name =
            cat(count, count == 1 ? " target" : " targets", dropout > 0 ? ", dropout, " : ", ");
        const TensorView y = random(tokens_, hidden, pad);
        const TensorView s = random(tokens_, count * pad);
        const Targets operands = make_targets(count, s, dropout);
        const std::vector<LoraTarget>& targets = operands.targets;
        const LoraRows lora{segments_, rows_};
        const double y_bytes = 2.0 * static_cast<double>(tokens_ * hidden);
        bytes(name + "lora_expand 4096", 2.0 * y_bytes, [&] {
            backend_->lora_expand({targets[0], y, lora});
        });
        bytes(name + "lora_expand_backward 4096", y_bytes, [&] {
            backend_->lora_expand_backward({y, targets, lora, false});
        });
        buffers_.resize(kept_);
    }

    /// Forward and backward of a linear without weight gradients: `count` adapters side by side in
    /// the pad, against one set of columns and a product per segment.
    void crossover(std::int32_t count) {
        const std::int64_t columns = std::int64_t{count} * rank;
        const TensorView x = random(tokens_, hidden, columns);
        const TensorView dy = random(tokens_, hidden, columns);
        const TensorView y = random(tokens_, hidden, columns);
        const TensorView dx = random(tokens_, hidden);
        const TensorView w = random(hidden + columns, hidden + columns);
        std::vector<LoraSlot> side_by_side;
        std::vector<LoraSegment> segments;
        for (std::int32_t i = 0; i < count; ++i) {
            side_by_side.push_back({floats(rank * hidden, 0.02F), floats(rank * hidden, 0.02F),
                                    floats(rank * hidden), floats(rank * hidden), rank, 2.0F,
                                    i * rank, 0, 0});
            segments.push_back({i, tokens_ * i / count, tokens_ * (i + 1) / count, 0});
        }
        std::vector<LoraSlot> stacked = side_by_side;
        for (LoraSlot& slot : stacked) slot.column = 0;
        const LoraRows lora{segments, rows_};
        const auto linear = [&](const std::vector<LoraSlot>& slots, std::int64_t width,
                                bool padded) {
            const std::int64_t more = padded ? width : 0;
            const auto behind = [&](const TensorView& view) {
                return TensorView{view.offset(0, view.cols), view.dtype, view.rows, width, view.ld};
            };
            const std::vector<LoraTarget> s{{slots, behind(x)}};
            const std::vector<LoraTarget> ds{{slots, behind(dy)}};
            const auto widened = [&](TensorView view) {
                view.cols += more;
                return view;
            };
            return time([&] {
                backend_->lora_shrink({x, s, lora});
                backend_->gemm({widened(x), w.row_range(0, hidden).col_range(0, hidden + more), y,
                                false, true, 1.0F, 0.0F});
                if (!padded) backend_->lora_expand({s[0], y, lora});
                backend_->lora_backward({dy, s[0], ds[0].s, lora});
                backend_->lora_grad_a({x, ds, lora});
                if (!padded) backend_->lora_expand_backward({dx, ds, lora, false});
                backend_->gemm({widened(dy), w.row_range(0, hidden + more).col_range(0, hidden), dx,
                                false, false, 1.0F, padded ? 0.0F : 1.0F});
            });
        };
        const double padded = linear(side_by_side, columns, true);
        const double segmented = linear(stacked, rank, false);
        std::printf("%-44s %10.1f us padded, %.1f by segment\n",
                    cat(count, " adapters, LoRA linear 4096").c_str(), padded * 1e6,
                    segmented * 1e6);
        buffers_.resize(kept_);
    }

    static std::string name_of(std::int64_t in, std::int64_t out,
                               const std::vector<std::int32_t>& in_turn) {
        return cat(in, " -> ", out,
                   in_turn.size() > 1 ? " ranks 8-128" : cat(" r ", in_turn.front()));
    }

    void ranks_of(const std::string& name, std::int64_t in, std::int64_t out,
                  const std::vector<std::int32_t>& in_turn, std::int32_t count) {
        std::vector<LoraSlot> adapter;
        std::vector<LoraSegment> segments;
        std::int32_t largest = 0;
        std::int64_t sum = 0;
        for (std::int32_t i = 0; i < count; ++i) {
            const std::int32_t r = in_turn[static_cast<std::size_t>(i) % in_turn.size()];
            adapter.push_back({floats(r * in, 0.02F), floats(r * out, 0.02F), floats(r * in),
                               floats(r * out), r, 2.0F, 0, 0, 0});
            segments.push_back({i, tokens_ * i / count, tokens_ * (i + 1) / count, 0});
            largest = std::max(largest, r);
            sum += r;
        }
        const std::int64_t padded = (sum + 15) / 16 * 16;
        const std::int64_t width = (largest + 15) / 16 * 16;
        const LoraRows lora{segments, rows_};
        const TensorView x = random(tokens_, in, padded);
        const TensorView dy = random(tokens_, out, padded);
        const TensorView y = random(tokens_, out);
        const TensorView dx = random(tokens_, in);
        const TensorView w = random(out + padded, in + padded);
        const auto behind = [&](const TensorView& view) {
            return TensorView{view.offset(0, view.cols), view.dtype, view.rows, width, view.ld};
        };
        const std::vector<LoraTarget> s{{adapter, behind(x)}};
        const std::vector<LoraTarget> ds{{adapter, behind(dy)}};
        const double x_bytes = 2.0 * static_cast<double>(tokens_ * in);
        const double dy_bytes = 2.0 * static_cast<double>(tokens_ * out);
        double all = bytes(name + " lora_shrink", x_bytes, [&] {
            backend_->lora_shrink({x, s, lora});
        });
        all += bytes(name + " lora_expand", 2.0 * dy_bytes, [&] {
            backend_->lora_expand({s[0], y, lora});
        });
        all += bytes(name + " lora_backward", dy_bytes, [&] {
            backend_->lora_backward({dy, s[0], ds[0].s, lora});
        });
        all += bytes(name + " lora_grad_a", x_bytes, [&] { backend_->lora_grad_a({x, ds, lora}); });
        all += bytes(name + " lora_expand_backward", x_bytes, [&] {
            backend_->lora_expand_backward({dx, ds, lora, false});
        });
        const auto products = [&](std::int64_t more, float beta) {
            const auto widened = [&](TensorView view) {
                view.cols += more;
                return view;
            };
            return time([&] {
                backend_->gemm({widened(x), w.row_range(0, out).col_range(0, in + more), y, false,
                                true, 1.0F, 0.0F});
                backend_->gemm({widened(dy), w.row_range(0, out + more).col_range(0, in), dx, false,
                                false, 1.0F, beta});
            });
        };
        std::printf("%-44s %10.1f us; both products %.1f, dX added %.1f, with %ld columns %.1f\n",
                    (name + " in all").c_str(), all * 1e6, products(0, 0.0F) * 1e6,
                    products(0, 1.0F) * 1e6, static_cast<long>(padded),
                    products(padded, 0.0F) * 1e6);
        buffers_.resize(kept_);
    }

    void elementwise() {
        const double matrix_bytes = 2.0 * static_cast<double>(tokens_ * hidden);
        const double inter_bytes = 2.0 * static_cast<double>(tokens_ * inter);
        const TensorView x = random(tokens_, hidden, pad);
        const TensorView y = random(tokens_, hidden, pad);
        const TensorView z = random(tokens_, hidden);
        const TensorView scaled = random(tokens_, pad);
        const TensorView gate_up = random(tokens_, 2 * inter);
        const TensorView d_gate_up = random(tokens_, 2 * inter, 2 * pad);
        const TensorView h = random(tokens_, inter, pad);
        const TensorView table = random(vocabulary, hidden);
        const TensorView weight = random(1, hidden);
        const float* inv_freq = floats(head_dim / 2);
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < tokens_; ++i) {
            ids.push_back(static_cast<std::int32_t>(i * 31 % vocabulary));
        }
        const std::int32_t* device_ids = ints(ids);
        for (std::int64_t i = 0; i < tokens_ / 2; ++i) {
            ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(2 * i);
        }
        const std::int32_t* even_ids = ints(ids);
        const TensorView gate = gate_up.col_range(0, inter);
        const TensorView up = gate_up.col_range(inter, inter);
        bytes("rms_norm 4096", 2 * matrix_bytes, [&] {
            backend_->rms_norm({x, weight.data, 1e-6F, 1, y});
        });
        bytes("rms_norm_backward 4096, accumulate", 4 * matrix_bytes, [&] {
            backend_->rms_norm_backward({x, weight.data, 1e-6F, 1, z, y, true});
        });
        bytes("the same, and rows of 64 columns scaled", 4 * matrix_bytes, [&] {
            backend_->rms_norm_backward({x, weight.data, 1e-6F, 1, z, y, true, scaled});
        });
        bytes("rms_norm 32 groups of 128", 2 * matrix_bytes, [&] {
            backend_->rms_norm({x, weight.data, 1e-6F, heads, y});
        });
        bytes("rope 32 x 128", 2 * matrix_bytes, [&] {
            backend_->rope({x, head_dim, inv_freq, rows_.positions, false});
        });
        bytes("swiglu 14336", 3 * inter_bytes, [&] { backend_->swiglu({gate, up, h}); });
        bytes("swiglu_backward 14336, with h", 6 * inter_bytes, [&] {
            backend_->swiglu_backward(
                {gate, up, h, d_gate_up.col_range(0, inter), d_gate_up.col_range(inter, inter), h});
        });
        bytes("add_bias 4096", 2 * matrix_bytes, [&] { backend_->add_bias({y, weight.data}); });
        bytes("copy 4096", 2 * matrix_bytes, [&] { backend_->copy({y, x}); });
        bytes("copy 64 columns", 4.0 * static_cast<double>(tokens_ * pad), [&] {
            backend_->copy({x.col_range(0, pad), y.col_range(0, pad)});
        });
        bytes("gather_rows 4096", 2 * matrix_bytes, [&] {
            backend_->gather_rows({y, table, device_ids, 1.0F});
        });
        bytes("scatter_rows 4096, half", 2 * matrix_bytes, [&] {
            backend_->scatter_rows({y, x.row_range(0, tokens_ / 2), even_ids});
        });
        buffers_.resize(kept_);
    }

    void attention() {
        const TensorView qkv = random(tokens_, (heads + 2 * kv_heads) * head_dim, 3 * pad);
        const TensorView o = random(tokens_, heads * head_dim, pad);
        const TensorView d_o = random(tokens_, heads * head_dim);
        const TensorView d_qkv = random(tokens_, (heads + 2 * kv_heads) * head_dim, 3 * pad);
        const auto part = [](const TensorView& all, std::int64_t first, std::int64_t count) {
            return all.col_range(first * head_dim, count * head_dim);
        };
        const Attention op{part(qkv, 0, heads),
                           part(qkv, heads, kv_heads),
                           part(qkv, heads + kv_heads, kv_heads),
                           o,
                           floats(tokens_ * heads),
                           head_dim,
                           0.0884F,
                           rows_};
        const double pairs = static_cast<double>(tokens_ * heads) * (sample_tokens + 1) / 2.0;
        flops("attention, samples of 2048", 4.0 * pairs * head_dim,
              [&] { backend_->attention(op); });
        flops("attention_backward", 10.0 * pairs * head_dim, [&] {
            backend_->attention_backward({op, d_o, part(d_qkv, 0, heads),
                                          part(d_qkv, heads, kv_heads),
                                          part(d_qkv, heads + kv_heads, kv_heads)});
        });
        buffers_.resize(kept_);
    }

    void loss() {
        const std::int64_t count = 2048;
        const TensorView logits = random(count, vocabulary);
        std::vector<std::int32_t> targets;
        std::vector<std::int32_t> bins;
        for (std::int64_t i = 0; i < count; ++i) {
            targets.push_back(static_cast<std::int32_t>(i * 37 % vocabulary));
            bins.push_back(static_cast<std::int32_t>(i * adapters / count));
        }
        const std::int32_t* device_targets = ints(targets);
        const std::int32_t* device_bins = ints(bins);
        const float* scales = floats(count);
        auto* sums = static_cast<double*>(allocate(2 * adapters * sizeof(double)));
        bytes("cross_entropy 2048 x 128256", 4.0 * static_cast<double>(count * vocabulary), [&] {
            backend_->cross_entropy(
                {logits, device_targets, scales, device_bins, sums, sums + adapters, true});
        });
        buffers_.resize(kept_);
    }

    void optimizer() {
        const std::int64_t count = 42'000'000;
        auto* scalars = static_cast<double*>(allocate(64));
        AdamW op;
        op.parameters = floats(count);
        op.gradients = floats(count);
        op.first_moments = floats(count);
        op.second_moments = static_cast<float*>(allocate(static_cast<std::size_t>(count) * 4));
        op.count = count;
        op.learning_rate = 1e-4;
        op.grad_sumsq = scalars;
        op.applied_steps = reinterpret_cast<std::int64_t*>(scalars + 1);
        op.skipped_steps = reinterpret_cast<std::int64_t*>(scalars + 2);
        bytes("adamw 42M", 32.0 * static_cast<double>(count), [&] { backend_->adamw(op); });
        AdamW8bit coded;
        coded.step = op;
        coded.first_codes = reinterpret_cast<std::uint8_t*>(op.first_moments);
        coded.second_codes = reinterpret_cast<std::uint8_t*>(op.second_moments);
        coded.first_scales = op.first_moments + count / 2;
        coded.second_scales = op.second_moments + count / 2;
        bytes("adamw_8bit 42M", 20.0 * static_cast<double>(count),
              [&] { backend_->adamw_8bit(coded); });
        bytes("sum_squares 42M", 4.0 * static_cast<double>(count), [&] {
            backend_->sum_squares({op.parameters, count, scalars});
        });
        buffers_.resize(kept_);
    }

    std::unique_ptr<Backend> backend_;
    std::int64_t tokens_;
    std::uint64_t seed_ = 0;
    std::size_t kept_ = 0;  ///< buffers of rows_, which stay
    std::vector<std::int32_t> offsets_;
    std::vector<Buffer> buffers_;
    PackedRows rows_;
    std::vector<LoraSegment> segments_;
};

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 8192;
    try {
        loratrain::Bench bench(tokens);
        const std::string part = argc > 2 ? argv[2] : "";
        const std::string only = argc > 3 ? argv[3] : "";
        if (part == "ranks") {
            bench.ranks(only);
        } else if (part == "one") {
            bench.equal({{2048, 2560}, {2048, 2048}, {2048, 11264}, {5632, 2048}}, 1, only);
        } else if (part == "four") {
            bench.equal({{4096, 6144}, {4096, 4096}, {4096, 28672}, {14336, 4096}}, 4, only);
        } else if (part == "gated") {
            for (const std::uint32_t dropout : {0U, loratrain::dropout_threshold(0.1)}) {
                bench.gated(14336, 2, dropout);
                bench.gated(14336, 16, dropout);
                bench.gated(5632, 1, dropout);
                bench.gated(1536, 8, dropout);
            }
        } else {
            bench.run();
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
