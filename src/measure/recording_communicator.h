#pragma once

#include <memory>
#include <utility>

#include "comm/communicator.h"
#include "measure/trace_recorder.h"

namespace loratrain {

/// Wraps a communicator and records its waits: how long the stream stands still for a message.
class RecordingCommunicator final : public Communicator {
  public:
    RecordingCommunicator(Communicator& inner, TraceRecorder& recorder)
        : inner_(inner), recorder_(recorder) {}

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        return std::make_unique<Recorded>(inner_.send(data, bytes, target, channel), recorder_);
    }
    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        return std::make_unique<Recorded>(inner_.receive(data, bytes, source, channel), recorder_);
    }
    void settle(const std::function<void()>& meanwhile) override { inner_.settle(meanwhile); }
    void progress() override { inner_.progress(); }
    void check() override { inner_.check(); }

  private:
    class Recorded final : public Transfer {
      public:
        Recorded(std::unique_ptr<Transfer> inner, TraceRecorder& recorder)
            : inner_(std::move(inner)), recorder_(recorder) {}
        using Transfer::wait;
        void wait(const std::function<void()>& meanwhile) override {
            recorder_.begin_wait();
            inner_->wait(meanwhile);
            recorder_.end_wait();
        }

      private:
        std::unique_ptr<Transfer> inner_;
        TraceRecorder& recorder_;
    };

    Communicator& inner_;
    TraceRecorder& recorder_;
};

}  // namespace loratrain
