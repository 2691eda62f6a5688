#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "adapter/grad_units.h"
#include "comm/rank_exchange.h"

namespace loratrain {

/// Sums the gradients of batches over all that have parts of them: replicas, and lanes of a stage,
/// one batch after the other while the ranks compute. Every rank begins the same batches in the
/// same order; construction and destruction are collective too.
///
/// A rank's part of the exchange goes on in poll() and finish() alone, and others need it to end
/// theirs: whoever waits for another rank has to poll meanwhile (comm/while_waiting.h).
class GradientExchange {
  public:
    /// `job` and `plan`, which may grow, outlive it, and so does the backend. `at_once`: values
    /// that a rank at most sends, and receives, at a time; any that holds every unit, up to
    /// exchanged_at_once(), which 0 stands for.
    GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend,
                     std::int64_t at_once = 0);

    /// What a rank has of a batch: its part of the adapter's gradients, whose array nothing else
    /// uses until finish(), and of the loss, null = none of it.
    struct Own {
        std::int32_t batch = 0;
        AdapterId adapter{};
        HostGradients gradients;
        std::unique_ptr<Readback> loss;
    };
    /// Begins a batch; does not wait.
    void begin(Own own);

    /// Goes on with what is begun, as far as that comes without waiting for others.
    void poll();
    /// Whether nothing of the batch is left to be waited for.
    bool over(std::int32_t batch);

    /// Equal bits on all ranks.
    struct Sums {
        double squares = 0.0;  ///< of all gradients
        double loss = 0.0;
    };
    /// Completes a batch that is begun, the earliest one: its gradients are the sums then. The
    /// owner of a unit adds what its holders have in their order, in fp32, and its squares in fp64;
    /// what ranks have of those, and of the loss, is added in rank order. So a deployment repeats
    /// to the bit. `meanwhile` (may be empty) is called now and then while others are waited for.
    Sums finish(std::int32_t batch, const std::function<void()>& meanwhile);

  private:
    /// Units [begin, end), few enough to be exchanged at a time.
    struct Chunk {
        std::size_t begin = 0;
        std::size_t end = 0;
    };
    struct Route {
        std::vector<GradUnit> units;
        std::vector<Chunk> chunks;
    };
    /// What is under way of a batch.
    enum class Phase : std::uint8_t { begun, to_owners, to_holders, gathering, over };
    struct Batch {
        Own own;
        const Route* route = nullptr;
        Phase phase = Phase::begun;
        std::size_t chunk = 0;
        double squares = 0.0;
    };

    const Route& route_of(AdapterId adapter);
    bool go_on(Batch& batch);
    void begin_chunk(Batch& batch);
    std::span<const GradUnit> units_of(const Batch& batch) const;
    void count(std::span<const GradUnit> units);
    std::span<float> own();
    std::span<float> owned();
    void pack(std::span<const GradUnit> units, std::span<const float> gradients);
    double add_up(std::span<const GradUnit> units);
    void unpack(std::span<const GradUnit> units, std::span<float> gradients);
    void begin_gathering(Batch& batch);
    Sums sums() const;

    const Job& job_;
    const Plan& plan_;
    std::int64_t at_once_;
    int rank_;
    int ranks_;
    RankExchange exchange_;
    std::map<AdapterId, Route> routes_;
    std::deque<Batch> batches_;       ///< begun, not finished; those that are over come first
    std::deque<Sums> over_;           ///< of those that are
    std::vector<int> to_owners_;      ///< values for each rank
    std::vector<int> from_holders_;   ///< values of each rank
    Buffer memory_;                   ///< exchange_bytes(), where that is the host's
    std::vector<float> host_memory_;  ///< else
    float* own_;                      ///< this rank's values, owner after owner
    float* owned_;                    ///< values of the units that it owns, holder after holder
    std::array<double, 2> own_numbers_{};
    std::vector<double> all_numbers_;  ///< squares and loss of every rank
};

}  // namespace loratrain
