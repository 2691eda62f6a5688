#pragma once

#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/rank_group.h"

namespace loratrain::test {

/// A group of threads of this process that sum in host memory.
class ThreadGroup {
  public:
    explicit ThreadGroup(std::int32_t size)
        : barrier_(size), given_(static_cast<std::size_t>(size)) {}

    class Member final : public RankGroup {
      public:
        Member(ThreadGroup& group, std::int32_t index) : group_(group), index_(index) {}
        std::int32_t index() const override { return index_; }
        std::int32_t size() const override {
            return static_cast<std::int32_t>(group_.given_.size());
        }
        void all_reduce(const TensorView& values) override {
            std::vector<float> sum(static_cast<std::size_t>(values.numel()), 0.0F);
            group_.exchange(index_, values, [&](const std::vector<TensorView>& all) {
                for (std::size_t lane = 0; lane < all.size(); ++lane) {
                    for (std::int64_t i = 0; i < values.numel(); ++i) {
                        const float value = *element(all[lane], i);
                        float& place = sum[static_cast<std::size_t>(i)];
                        place = lane == 0 ? value : place + value;
                    }
                }
            });
            for (std::int64_t i = 0; i < values.numel(); ++i) {
                *element(values, i) = sum[static_cast<std::size_t>(i)];
            }
        }
        void all_gather(const void* own, std::size_t bytes, void* all) override {
            std::vector<char> gathered(bytes * group_.given_.size());
            const TensorView mine{const_cast<void*>(own), DType::f32, 1, 1, 1};
            group_.exchange(index_, mine, [&](const std::vector<TensorView>& given) {
                for (std::size_t lane = 0; lane < given.size(); ++lane) {
                    std::memcpy(gathered.data() + lane * bytes, given[lane].data, bytes);
                }
            });
            std::memcpy(all, gathered.data(), gathered.size());
        }

      private:
        static float* element(const TensorView& view, std::int64_t i) {
            return view.f32() + i / view.cols * view.ld + i % view.cols;
        }

        ThreadGroup& group_;
        std::int32_t index_;
    };

  private:
    /// `read` sees what all have given, before anybody goes on.
    template <class Read>
    void exchange(std::int32_t index, const TensorView& mine, const Read& read) {
        given_[static_cast<std::size_t>(index)] = mine;
        barrier_.arrive_and_wait();
        read(given_);
        barrier_.arrive_and_wait();
    }

    std::barrier<> barrier_;
    std::vector<TensorView> given_;
};

/// Runs work(lanes) as every lane of a stage, one thread each; `sharers` neighbouring lanes have
/// the same key-value heads. What a lane throws ends the program: the others wait for it.
inline void run_lanes(std::int32_t count, std::int32_t sharers,
                      const std::function<void(const StageLanes&)>& work) {
    ThreadGroup all(count);
    std::vector<std::unique_ptr<ThreadGroup>> parts;
    for (std::int32_t i = 0; i < count; i += sharers) {
        parts.push_back(std::make_unique<ThreadGroup>(sharers));
    }
    std::vector<std::jthread> threads;
    for (std::int32_t lane = 0; lane < count; ++lane) {
        threads.emplace_back([&, lane] {
            ThreadGroup::Member whole(all, lane);
            ThreadGroup::Member part(*parts[static_cast<std::size_t>(lane / sharers)],
                                     lane % sharers);
            work({&whole, &part});
        });
    }
}

}  // namespace loratrain::test
