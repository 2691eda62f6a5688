#pragma once

#include <memory>
#include <utility>

#include "backend/op_timer.h"
#include "comm/communicator.h"

namespace loratrain {

/// Another communicator whose waits are timed: how long the backend's stream (or the host that
/// feeds it) stands still for a transfer.
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

}  // namespace loratrain
