#pragma once

#include <functional>
#include <map>
#include <vector>

#include "adapter/adapter_bank.h"
#include "adapter/grad_units.h"
#include "comm/rank_exchange.h"

namespace loratrain {

/// Sums the gradients of a batch over all that have parts of them: replicas, and lanes of a stage.
/// Every rank makes the same calls in the same order, construction and destruction included, and
/// waits for the others in them.
class GradientExchange {
  public:
    /// `job` and `plan`, which may grow, outlive it.
    GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan);

    /// Equal bits on all ranks.
    struct Sums {
        double squares = 0.0;  ///< of all gradients
        double loss = 0.0;
    };

    /// Completes the adapter's gradients in `bank`: the owner of a unit adds what its holders have
    /// in their order, in fp32, and its squares in fp64; what ranks have of those, and of `loss`,
    /// is added in rank order. So a deployment repeats to the bit. `meanwhile` as RankExchange's.
    Sums reduce(AdapterId adapter, double loss, AdapterBank& bank,
                const RankExchange::Meanwhile& meanwhile);

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

    const Route& route_of(AdapterId adapter);
    double reduce_chunk(std::span<const GradUnit> units, std::vector<float>& gradients);
    void count(std::span<const GradUnit> units);
    void pack(std::span<const GradUnit> units, const std::vector<float>& gradients);
    double add_up(std::span<const GradUnit> units);
    void unpack(std::span<const GradUnit> units, std::vector<float>& gradients);

    const Job& job_;
    const Plan& plan_;
    int rank_;
    int ranks_;
    RankExchange exchange_;
    RankExchange::Meanwhile meanwhile_;
    std::map<AdapterId, Route> routes_;
    std::vector<int> to_owners_;     ///< values for each rank
    std::vector<int> from_holders_;  ///< values of each rank
    std::vector<float> own_;         ///< this rank's values, owner after owner
    std::vector<float> owned_;       ///< values of the units that it owns, holder after holder
};

}  // namespace loratrain
