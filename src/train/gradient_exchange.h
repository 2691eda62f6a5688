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

/// Sums the gradients of batches over all that have parts of them: replicas, and lanes of a stage,
/// one batch after the other while the ranks compute. Every rank begins the same batches in the
/// same order; construction and destruction are collective too.
///
/// A rank's part of the exchange goes on in poll() and finish() alone, and others need it to end
/// theirs: whoever waits for another rank has to poll meanwhile (comm/waiting.h).
class GradientExchange {
  public:
    virtual ~GradientExchange() = default;
    GradientExchange(const GradientExchange&) = delete;
    GradientExchange& operator=(const GradientExchange&) = delete;

    /// What a rank has of a batch: its part of the adapter's gradients, in backend memory that
    /// nothing else uses until finish(), and of the loss, null = none of it.
    struct Own {
        std::int32_t batch = 0;
        AdapterId adapter{};
        std::span<float> gradients;
        std::unique_ptr<Readback> loss;
    };
    /// Begins a batch; does not wait.
    void begin(Own own);

    /// Goes on with what is begun, as far as that comes without waiting for others.
    void poll();
    /// Whether nothing of the batch is left to be waited for.
    bool over(std::int32_t batch);
    /// Whether the host waits for the backend in finish() (Communicator::settle).
    virtual bool waits_for_backend() const = 0;

    /// Equal bits on all ranks.
    struct Sums {
        double squares = 0.0;  ///< of all gradients
        double loss = 0.0;
    };
    /// Completes a batch that is begun, the earliest one: its gradients are the sums then, for what
    /// the backend is given next. The owner of a unit adds what its copies have in their order, in
    /// fp32, and its squares in fp64; what ranks have of those, and of the loss, is added by
    /// replica, stage and lane. So a deployment repeats to the bit, on whatever hosts. `meanwhile`
    /// (may be empty) is called now and then while others are waited for.
    Sums finish(std::int32_t batch, const std::function<void()>& meanwhile);

  protected:
    enum class Phase : std::uint8_t { computing, summing, gathering, over };
    struct Batch {
        Own own;
        const ExchangeRoute* route = nullptr;
        Phase phase = Phase::computing;
        double squares = 0.0;  ///< of the units that this rank owns
    };

    GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan, std::int64_t at_once);

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    RankExchange& host_exchange() { return exchange_; }

  private:
    /// Batches are begun, summed and stored in one order, but begun and stored without regard to
    /// how far others of them are.
    virtual void begin_sums(const Batch& batch) = 0;
    /// Whether this rank's gradients of the earliest batch that is not summed are computed.
    virtual bool computed() = 0;
    /// Goes on with that batch, once it and its loss are computed; false where others have to be
    /// waited for. Once all is done host_exchange() is idle and summed() true.
    virtual bool go_on_summing(Batch& batch) = 0;
    virtual bool summed() const = 0;
    /// The sums become the gradients.
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
    std::vector<std::int32_t> order_;  ///< of the ranks, in which their numbers are added
    RankExchange exchange_;
    std::map<AdapterId, ExchangeRoute> routes_;
    std::deque<Batch> batches_;  ///< begun, not finished; those that are over come first
    std::deque<Sums> over_;      ///< of those that are
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
