#pragma once

#include <deque>

#include "adapter/host_gradients.h"
#include "train/gradient_exchange.h"

namespace loratrain {

/// Through the memory of the host, over MPI.
class HostGradientExchange final : public GradientExchange {
  public:
    HostGradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend,
                         std::int64_t at_once);

  private:
    enum class Step : std::uint8_t { begun, to_owners, to_copies, summed };

    bool waits_for_backend() const override { return true; }
    void begin_sums(const Batch& batch) override;
    bool computed() override { return gradients_[summed_].ready(); }
    bool go_on_summing(Batch& batch) override;
    bool summed() const override { return step_ == Step::summed; }
    void store(const Batch& batch) override;

    void begin_chunk(const Batch& batch);
    std::span<float> own();
    std::span<float> owned();
    void pack(std::span<const GradUnit> units, std::span<const float> gradients);
    double add_up(std::span<const GradUnit> units);
    void unpack(std::span<const GradUnit> units, std::span<float> gradients);

    Backend& backend_;
    std::deque<HostGradients> gradients_;  ///< of the batches that are begun
    std::size_t summed_ = 0;               ///< of them
    Step step_ = Step::summed;             ///< of the one behind those
    std::size_t chunk_ = 0;                ///< likewise
    ExchangeCounts counts_;                ///< of the chunk
    Buffer memory_;                        ///< exchange_bytes(), where that is the host's
    std::vector<float> host_memory_;       ///< else
    float* own_;                           ///< this rank's values, owner after owner
    float* owned_;                         ///< values of the units that it owns, copy by copy
};

}  // namespace loratrain
