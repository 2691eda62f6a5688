#include "train/gradient_exchange.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "adapter/host_gradients.h"
#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

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

std::size_t sum_of(const std::vector<int>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// The whole tensor of a copy.
template <class Value>
std::span<Value> tensor_of(const UnitCopy& copy, std::span<Value> gradients) {
    return gradients.subspan(static_cast<std::size_t>(copy.first),
                             static_cast<std::size_t>(copy.cut.whole_count()));
}

HostGradientExchange::HostGradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan,
                                           Backend& backend, std::int64_t at_once)
    : GradientExchange(mpi, job, plan, at_once), backend_(backend), counts_({}, 0, mpi.size()) {
    const auto values = static_cast<std::size_t>(exchanged_at_once(plan));
    if (plan.backend == BackendKind::cpu && plan.joint) {
        memory_ = backend.allocate(exchange_bytes(plan), "exchange of gradients");
        own_ = memory_.as<float>();
    } else {
        host_memory_.resize(2 * values);
        own_ = host_memory_.data();
    }
    owned_ = own_ + values;
}

void HostGradientExchange::begin_sums(const Batch& batch) {
    const std::span<float> own = batch.own.gradients;
    gradients_.emplace_back(backend_, own.data(), own.size());
}

void HostGradientExchange::store(const Batch& /*batch*/) {
    gradients_.front().store();
    gradients_.pop_front();
    --summed_;
}

bool HostGradientExchange::go_on_summing(Batch& batch) {
    HostGradients& gradients = gradients_[summed_];
    if (step_ == Step::summed) step_ = Step::begun;
    switch (step_) {
        case Step::begun:
            chunk_ = 0;
            begin_chunk(batch);
            return true;
        case Step::to_owners:
            if (!host_exchange().done()) return false;
            batch.squares += add_up(batch.route->chunk(chunk_));
            host_exchange().begin_all_to_all(owned(), counts_.from_copies, own(),
                                             counts_.to_owners);
            step_ = Step::to_copies;
            return true;
        case Step::to_copies:
            if (!host_exchange().done()) return false;
            unpack(batch.route->chunk(chunk_), gradients.sums());
            ++chunk_;
            begin_chunk(batch);
            return true;
        case Step::summed:
            break;
    }
    return false;
}

/// Or what comes behind the last one.
void HostGradientExchange::begin_chunk(const Batch& batch) {
    if (chunk_ == batch.route->chunks()) {
        step_ = Step::summed;
        ++summed_;
        return;
    }
    const std::span<const GradUnit> units = batch.route->chunk(chunk_);
    counts_ = ExchangeCounts(units, rank(), ranks());
    pack(units, gradients_[summed_].values());
    host_exchange().begin_all_to_all(own(), counts_.to_owners, owned(), counts_.from_copies);
    step_ = Step::to_owners;
}

std::span<float> HostGradientExchange::own() {
    return {own_, sum_of(counts_.to_owners)};
}

std::span<float> HostGradientExchange::owned() {
    return {owned_, sum_of(counts_.from_copies)};
}

void HostGradientExchange::pack(std::span<const GradUnit> units, std::span<const float> gradients) {
    for_each_copy(units, rank(), counts_.to_owners,
                  [&](const GradUnit&, const UnitCopy& copy, std::int64_t place) {
                      const std::vector<float> values =
                          cut_out(copy.cut, tensor_of(copy, gradients));
                      std::copy(values.begin(), values.end(), own_ + place);
                  });
}

/// Every copy's values of an owned unit become the sum; returns its squares.
double HostGradientExchange::add_up(std::span<const GradUnit> units) {
    double squares = 0.0;
    for_each_owned(units, rank(), counts_.from_copies,
                   [&](const GradUnit& unit, const std::vector<std::int64_t>& places) {
                       const auto count = static_cast<std::size_t>(unit.count);
                       float* sum = owned_ + places.front();
                       for (std::size_t h = 1; h < places.size(); ++h) {
                           const float* values = owned_ + places[h];
                           for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
                       }
                       for (std::size_t i = 0; i < count; ++i) {
                           squares += double{sum[i]} * double{sum[i]};
                       }
                       for (std::size_t h = 1; h < places.size(); ++h) {
                           std::copy_n(sum, count, owned_ + places[h]);
                       }
                   });
    return squares;
}

void HostGradientExchange::unpack(std::span<const GradUnit> units, std::span<float> gradients) {
    for_each_copy(units, rank(), counts_.to_owners,
                  [&](const GradUnit& unit, const UnitCopy& copy, std::int64_t place) {
                      paste(copy.cut, {own_ + place, static_cast<std::size_t>(unit.count)},
                            tensor_of(copy, gradients));
                  });
}

}  // namespace

std::unique_ptr<GradientExchange> make_host_gradient_exchange(const MpiSession& mpi, const Job& job,
                                                              const Plan& plan, Backend& backend,
                                                              std::int64_t at_once) {
    return std::make_unique<HostGradientExchange>(mpi, job, plan, backend, at_once);
}

}  // namespace loratrain
