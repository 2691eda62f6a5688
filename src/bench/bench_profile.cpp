#include "bench/bench_run.h"

#include "backend/timed_backend.h"
#include "comm/collective.h"

namespace loratrain {

namespace {

/// A communicator that times the waits of another one: how long the backend's stream, or the host
/// that feeds it, stands still for a transfer.
class TimedCommunicator final : public Communicator {
  public:
    TimedCommunicator(Communicator& inner, OpTimer& timer) : inner_(inner), timer_(timer) {}

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        return std::make_unique<TimedTransfer>(inner_.send(data, bytes, target, channel), timer_,
                                               TimedOp::wait_send);
    }
    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        return std::make_unique<TimedTransfer>(inner_.receive(data, bytes, source, channel), timer_,
                                               TimedOp::wait_receive);
    }
    void settle(const std::function<void()>& meanwhile) override { inner_.settle(meanwhile); }
    void progress() override { inner_.progress(); }
    void check() override { inner_.check(); }

  private:
    class TimedTransfer final : public Transfer {
      public:
        TimedTransfer(std::unique_ptr<Transfer> inner, OpTimer& timer, TimedOp op)
            : inner_(std::move(inner)), timer_(timer), op_(op) {}
        using Transfer::wait;
        void wait(const std::function<void()>& meanwhile) override {
            timer_.begin(op_);
            inner_->wait(meanwhile);
            timer_.end();
        }

      private:
        std::unique_ptr<Transfer> inner_;
        OpTimer& timer_;
        TimedOp op_;
    };

    Communicator& inner_;
    OpTimer& timer_;
};

}  // namespace

template <class Archive>
void fields(Archive& archive, OpTimes& times) {
    archive("seconds", times.seconds);
    archive("calls", times.calls);
}

BenchProfile profile_window(const CommandLine::Bench& bench, const BenchCase& bench_case,
                            const MpiSession& mpi, Communicator& communicator, Backend& backend) {
    OpTimer timer(backend);
    TimedBackend timed_backend(backend, timer);
    TimedCommunicator timed_communicator(communicator, timer);
    BenchRun run(bench_case, mpi, timed_communicator, timed_backend);
    run.run(bench_warmup_rounds);
    timer.start();
    BenchProfile profile;
    profile.rounds = bench.steps;
    profile.seconds = run.run(bench.steps).seconds;
    profile.ranks = gather(mpi, timer.stop());
    return profile;
}

}  // namespace loratrain
