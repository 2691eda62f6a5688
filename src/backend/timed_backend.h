#pragma once

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "backend/op_timer.h"

namespace loratrain {

/// HostCopies that time the waits of others.
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

/// A backend that runs the operators of another one, timed and named for a profiler. Buffers belong
/// to the other backend.
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
        timed(TimedOp::zero, [&] { inner_.zero(target, bytes); });
    }
#define LORATRAIN_TIMED_OPERATOR(name, Parameter, part) \
    void name(Parameter op) override {                  \
        timed(TimedOp::name, [&] { inner_.name(op); }); \
    }
    LORATRAIN_OPERATORS(LORATRAIN_TIMED_OPERATOR)
#undef LORATRAIN_TIMED_OPERATOR
    bool takes_at_once(const LoraGatedForward& op) const override {
        return inner_.takes_at_once(op);
    }
    bool takes_at_once(const LoraGatedBackward& op) const override {
        return inner_.takes_at_once(op);
    }
    bool takes_at_once(const ExpertGateUp& op) const override {
        return inner_.takes_at_once(op);
    }
    bool takes_at_once(const ExpertDownBackward& op) const override {
        return inner_.takes_at_once(op);
    }

  private:
    template <class Work>
    void timed(TimedOp op, const Work& work) {
        const ProfilerRange range(inner_, name_of(op));
        timer_.begin(op);
        work();
        timer_.end();
    }

    Backend& inner_;
    OpTimer& timer_;
};

}  // namespace loratrain
