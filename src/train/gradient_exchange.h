#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "comm/rank_exchange.h"
#include "config/job.h"
#include "plan/plan.h"
#include "train/exchange_route.h"

namespace loratrain {

/// Sums the gradients of batches over replicas and over the lanes of a stage, one batch after the
/// other, while the ranks compute. Every rank begins the same batches in the same order.
/// Construction and destruction are collective.
///
/// A rank's exchange progresses in poll() and finish() only, and other ranks depend on it. So a
/// rank that waits for another one has to poll meanwhile (comm/waiting.h).
class GradientExchange {
  public:
    virtual ~GradientExchange() = default;
    GradientExchange(const GradientExchange&) = delete;
    GradientExchange& operator=(const GradientExchange&) = delete;

    /// A rank's part of a batch: gradients in backend memory, which nothing else uses until
    /// finish(), and its part of the loss (null = none).
    struct Own {
        std::int32_t batch = 0;
        AdapterId adapter{};
        std::span<float> gradients;
        std::unique_ptr<Readback> loss;
    };
    /// Begins the exchange of a batch. Does not wait.
    void begin(Own own);

    /// Continues all exchanges as far as possible without waiting for other ranks.
    void poll();
    /// True if finish(batch) would not wait.
    bool over(std::int32_t batch);
    /// True if the host waits for the backend in finish() (Communicator::settle).
    virtual bool waits_for_backend() const = 0;

    /// Sums over all ranks, the same bits on each.
    struct Sums {
        double squares = 0.0;  ///< squared gradients
        double loss = 0.0;
    };
    /// Completes the earliest batch that is begun: its gradients are the sums for all later work of
    /// the backend. Order of the sums: a unit's owner adds its copies in their order in fp32, and
    /// its squares in fp64; squares and losses of ranks are added by replica, stage and lane. So a
    /// deployment repeats to the bit on any hosts. `meanwhile` (may be empty) is called often while
    /// other ranks are waited for.
    Sums finish(std::int32_t batch, const std::function<void()>& meanwhile);

  protected:
    enum class Phase : std::uint8_t { computing, summing, gathering, over };
    struct Batch {
        Own own;
        const ExchangeRoute* route = nullptr;
        Phase phase = Phase::computing;
        double squares = 0.0;  ///< squared gradients of the units that this rank owns
    };

    GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan, std::int64_t at_once);

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    RankExchange& host_exchange() { return exchange_; }

  private:
    /// Batches are begun, summed and stored in the same order. Beginning and storing do not wait
    /// for other batches.
    virtual void begin_sums(const Batch& batch) = 0;
    /// True if this rank has computed its gradients of the earliest batch that is not summed.
    virtual bool computed() = 0;
    /// Continues that batch once its gradients and loss are computed. False if it waits for other
    /// ranks. At the end host_exchange() is idle and summed() is true.
    virtual bool go_on_summing(Batch& batch) = 0;
    virtual bool summed() const = 0;
    /// Replaces the gradients by the sums.
    virtual void store(const Batch& batch) = 0;

    const ExchangeRoute& route_of(AdapterId adapter);
    bool go_on(Batch& batch);
    void begin_gathering(Batch& batch);
    Sums sums() const;

    const Job& job_;
    const Plan& plan_;
    std::int64_t at_once_;
    int rank_;
    int ranks_;
    std::vector<std::int32_t> order_;  ///< ranks in the order in which their numbers are added
    RankExchange exchange_;
    std::map<AdapterId, ExchangeRoute> routes_;
    std::deque<Batch> batches_;  ///< begun, not finished; batches that are over come first
    std::deque<Sums> over_;      ///< sums of the batches that are over
    std::array<double, 2> own_numbers_{};
    std::vector<double> all_numbers_;  ///< squares and loss of every rank
};

/// Makes the exchange over NCCL in device memory where the backend has device memory and the
/// program was built with NCCL, else the one over MPI in host memory. `job` and `plan`, which may
/// grow, outlive the exchange, and so does `backend`. `at_once`: the most values that a rank sends,
/// and receives, at a time; at least one unit, at most exchanged_at_once(); 0 = that.
std::unique_ptr<GradientExchange> make_gradient_exchange(const MpiSession& mpi, const Job& job,
                                                         const Plan& plan, Backend& backend,
                                                         std::int64_t at_once = 0);

/// Over MPI, in host memory.
std::unique_ptr<GradientExchange> make_host_gradient_exchange(const MpiSession& mpi, const Job& job,
                                                              const Plan& plan, Backend& backend,
                                                              std::int64_t at_once);

/// Over NCCL, in device memory; null where that cannot be used. Once all ranks have come to a
/// batch, the whole exchange is queued beside their computation: pack, send to the owners, add,
/// send back, unpack.
std::unique_ptr<GradientExchange> make_device_gradient_exchange(const MpiSession& mpi,
                                                                const Job& job, const Plan& plan,
                                                                Backend& backend,
                                                                std::int64_t at_once);

}  // namespace loratrain
