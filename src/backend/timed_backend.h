#pragma once

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "backend/op_timer.h"
#include "backend/range.h"

namespace loratrain {

/// Others whose waits are timed.
class TimedHostCopies final : public HostCopies {
  public:
    TimedHostCopies(std::unique_ptr<HostCopies> inner, OpTimer& timer)
        : inner_(std::move(inner)), timer_(timer) {}

    void pin(void* data, std::size_t bytes) override { inner_->pin(data, bytes); }
    void save(std::span<const HostCopy> copies) override { inner_->save(copies); }
    void load(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        inner_->load(place, copies, clock);
    }
    void store(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        inner_->store(place, copies, clock);
    }
    std::unique_ptr<StreamClock> make_clock() override { return inner_->make_clock(); }
    void await(std::int32_t place) override {
        timer_.begin(TimedOp::wait_weights);
        inner_->await(place);
        timer_.end();
    }

  private:
    std::unique_ptr<HostCopies> inner_;
    OpTimer& timer_;
};

/// Another backend with its ops timed and named for a profiler. Buffers belong to the other one.
class TimedBackend final : public Backend {
  public:
    TimedBackend(Backend& inner, OpTimer& timer) : inner_(inner), timer_(timer) {}

    std::string description() const override { return inner_.description(); }
    DType compute_dtype() const override { return inner_.compute_dtype(); }
    void* native_stream() const override { return inner_.native_stream(); }

    Buffer allocate(std::size_t bytes, const char* what) override {
        return inner_.allocate(bytes, what);
    }
    void prepare_scratch(const ScratchSizes& sizes) override { inner_.prepare_scratch(sizes); }
    void before_stalls(const std::function<void()>& call) override { inner_.before_stalls(call); }
    FirstUses first_uses() const override { return inner_.first_uses(); }
    void release(void* data, std::size_t bytes) override { inner_.release(data, bytes); }
    MemoryUse memory() const override { return inner_.memory(); }
    void synchronize() override { inner_.synchronize(); }
    std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) override {
        return std::make_unique<TimedHostCopies>(inner_.make_host_copies(places), timer_);
    }
    std::unique_ptr<StreamClock> make_clock() override { return inner_.make_clock(); }
    std::unique_ptr<SideStream> make_side_stream() override { return inner_.make_side_stream(); }
    std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) override {
        return inner_.read_later(parts);
    }
    void push_range(const char* name, std::int64_t number) override {
        inner_.push_range(name, number);
    }
    void pop_range() override { inner_.pop_range(); }

    void upload(void* target, const void* host_source, std::size_t bytes) override {
        timed(TimedOp::transfer, [&] { inner_.upload(target, host_source, bytes); });
    }
    void download(void* host_target, const void* source, std::size_t bytes) override {
        timed(TimedOp::transfer, [&] { inner_.download(host_target, source, bytes); });
    }
    void zero(void* target, std::size_t bytes) override {
        timed(TimedOp::fill, [&] { inner_.zero(target, bytes); });
    }
    void copy(const TensorView& target, const TensorView& source) override {
        timed(TimedOp::copy, [&] { inner_.copy(target, source); });
    }
    void add_bias(const TensorView& y, const void* bias) override {
        timed(TimedOp::add_bias, [&] { inner_.add_bias(y, bias); });
    }
    void add(const TensorView& y, const TensorView& x) override {
        timed(TimedOp::add, [&] { inner_.add(y, x); });
    }
    void gather_rows(const TensorView& y, const TensorView& table, const std::int32_t* ids,
                     float scale) override {
        timed(TimedOp::gather_rows, [&] { inner_.gather_rows(y, table, ids, scale); });
    }
    void scatter_rows(const TensorView& y, const TensorView& x, const std::int32_t* ids) override {
        timed(TimedOp::scatter_rows, [&] { inner_.scatter_rows(y, x, ids); });
    }
    void fill_random(const TensorView& target, const RandomMatrix& random) override {
        timed(TimedOp::fill, [&] { inner_.fill_random(target, random); });
    }
    void draw_uniform(const DrawUniform& op) override {
        timed(TimedOp::fill, [&] { inner_.draw_uniform(op); });
    }
    void dequantize(const TensorView& target, const QuantizedMatrix& weights) override {
        timed(TimedOp::dequantize, [&] { inner_.dequantize(target, weights); });
    }
    void gemm(const Gemm& op) override {
        timed(TimedOp::gemm, [&] { inner_.gemm(op); });
    }
    void quantize_rows(const QuantizeRows& op) override {
        timed(TimedOp::quantize_rows, [&] { inner_.quantize_rows(op); });
    }
    void transpose_codes(const Fp8Rows& to, const Fp8Rows& from) override {
        timed(TimedOp::transpose_codes, [&] { inner_.transpose_codes(to, from); });
    }
    void gemm_fp8(const GemmFp8& op) override {
        timed(TimedOp::gemm_fp8, [&] { inner_.gemm_fp8(op); });
    }
    void lora_pack(std::span<const LoraPack> ops) override {
        timed(TimedOp::lora_pack, [&] { inner_.lora_pack(ops); });
    }
    void lora_shrink(const LoraShrink& op) override {
        timed(TimedOp::lora_shrink, [&] { inner_.lora_shrink(op); });
    }
    void lora_expand(const LoraExpand& op) override {
        timed(TimedOp::lora_expand, [&] { inner_.lora_expand(op); });
    }
    void lora_backward(const LoraBackward& op) override {
        timed(TimedOp::lora_backward, [&] { inner_.lora_backward(op); });
    }
    void lora_backward_group(std::span<const LoraBackward> ops) override {
        timed(TimedOp::lora_backward, [&] { inner_.lora_backward_group(ops); });
    }
    void lora_grad_a(const LoraGradA& op) override {
        timed(TimedOp::lora_grad_a, [&] { inner_.lora_grad_a(op); });
    }
    bool takes_at_once(const LoraGatedForward& op) const override {
        return inner_.takes_at_once(op);
    }
    void lora_gated_forward(const LoraGatedForward& op) override {
        timed(TimedOp::lora_gated_forward, [&] { inner_.lora_gated_forward(op); });
    }
    bool takes_at_once(const LoraGatedBackward& op) const override {
        return inner_.takes_at_once(op);
    }
    void lora_gated_backward(const LoraGatedBackward& op) override {
        timed(TimedOp::lora_gated_backward, [&] { inner_.lora_gated_backward(op); });
    }
    void lora_expand_backward(const LoraExpandBackward& op) override {
        timed(TimedOp::lora_expand_backward, [&] { inner_.lora_expand_backward(op); });
    }
    void lora_gather_a(const LoraIds& op) override {
        timed(TimedOp::lora_gather_a, [&] { inner_.lora_gather_a(op); });
    }
    void lora_scatter_a(const LoraIds& op) override {
        timed(TimedOp::lora_scatter_a, [&] { inner_.lora_scatter_a(op); });
    }
    void dora_norms(const DoraNorms& op) override {
        timed(TimedOp::dora_norms, [&] { inner_.dora_norms(op); });
    }
    void dora_scale(const DoraScale& op) override {
        timed(TimedOp::dora_scale, [&] { inner_.dora_scale(op); });
    }
    void dora_grad_magnitude(const DoraGradMagnitude& op) override {
        timed(TimedOp::dora_grad_magnitude, [&] { inner_.dora_grad_magnitude(op); });
    }
    void vera_product(const VeraProduct& op) override {
        timed(TimedOp::vera_product, [&] { inner_.vera_product(op); });
    }
    void vera_gradients(const VeraGradients& op) override {
        timed(TimedOp::vera_gradients, [&] { inner_.vera_gradients(op); });
    }
    void drop_rows(const DropRows& op) override {
        timed(TimedOp::drop_rows, [&] { inner_.drop_rows(op); });
    }
    void add_noise(const AddNoise& op) override {
        timed(TimedOp::add_noise, [&] { inner_.add_noise(op); });
    }
    void rms_norm(const RmsNorm& op) override {
        timed(TimedOp::rms_norm, [&] { inner_.rms_norm(op); });
    }
    void rms_norm_backward(const RmsNormBackward& op) override {
        timed(TimedOp::rms_norm_backward, [&] { inner_.rms_norm_backward(op); });
    }
    void rope(const Rope& op) override {
        timed(TimedOp::rope, [&] { inner_.rope(op); });
    }
    void attention(const Attention& op) override {
        timed(TimedOp::attention, [&] { inner_.attention(op); });
    }
    void attention_backward(const AttentionBackward& op) override {
        timed(TimedOp::attention_backward, [&] { inner_.attention_backward(op); });
    }
    void cached_attention(const CachedAttention& op) override {
        timed(TimedOp::attention, [&] { inner_.cached_attention(op); });
    }
    void swiglu(const SwiGlu& op) override {
        timed(TimedOp::swiglu, [&] { inner_.swiglu(op); });
    }
    void swiglu_backward(const SwiGluBackward& op) override {
        timed(TimedOp::swiglu_backward, [&] { inner_.swiglu_backward(op); });
    }
    void xielu(const Xielu& op) override {
        timed(TimedOp::xielu, [&] { inner_.xielu(op); });
    }
    void xielu_backward(const XieluBackward& op) override {
        timed(TimedOp::xielu_backward, [&] { inner_.xielu_backward(op); });
    }
    void route(const Route& op) override {
        timed(TimedOp::route, [&] { inner_.route(op); });
    }
    void combine_experts(const CombineExperts& op) override {
        timed(TimedOp::combine_experts, [&] { inner_.combine_experts(op); });
    }
    void weigh_experts(const WeighExperts& op) override {
        timed(TimedOp::weigh_experts, [&] { inner_.weigh_experts(op); });
    }
    void weigh_rows(const WeighRows& op) override {
        timed(TimedOp::weigh_rows, [&] { inner_.weigh_rows(op); });
    }
    void narrow_experts(const ExpertLora& op) override {
        timed(TimedOp::narrow_experts, [&] { inner_.narrow_experts(op); });
    }
    void widen_experts(const ExpertLora& op) override {
        timed(TimedOp::widen_experts, [&] { inner_.widen_experts(op); });
    }
    void add_expert_grads(const ExpertLora& op) override {
        timed(TimedOp::add_expert_grads, [&] { inner_.add_expert_grads(op); });
    }
    void route_backward(const RouteBackward& op) override {
        timed(TimedOp::route_backward, [&] { inner_.route_backward(op); });
    }
    void soft_cap(const SoftCap& op) override {
        timed(TimedOp::soft_cap, [&] { inner_.soft_cap(op); });
    }
    void cross_entropy(const CrossEntropy& op) override {
        timed(TimedOp::cross_entropy, [&] { inner_.cross_entropy(op); });
    }
    void shard_statistics(const ShardedCrossEntropy& op) override {
        timed(TimedOp::cross_entropy, [&] { inner_.shard_statistics(op); });
    }
    void sharded_cross_entropy(const ShardedCrossEntropy& op) override {
        timed(TimedOp::cross_entropy, [&] { inner_.sharded_cross_entropy(op); });
    }
    void sum_squares(const float* values, std::int64_t count, double* result) override {
        timed(TimedOp::sum_squares, [&] { inner_.sum_squares(values, count, result); });
    }
    void adamw(const AdamW& op) override {
        timed(TimedOp::adamw, [&] { inner_.adamw(op); });
    }
    void adamw_8bit(const AdamW8bit& op) override {
        timed(TimedOp::adamw_8bit, [&] { inner_.adamw_8bit(op); });
    }
    void move_doubles(const MoveDoubles& op) override {
        timed(TimedOp::move_doubles, [&] { inner_.move_doubles(op); });
    }

  private:
    template <class Work>
    void timed(TimedOp op, const Work& work) {
        const Range range(inner_, name_of(op));
        timer_.begin(op);
        work();
        timer_.end();
    }

    Backend& inner_;
    OpTimer& timer_;
};

}  // namespace loratrain
