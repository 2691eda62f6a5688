#include "train/gradient_exchange.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "plan/memory/memory_model.h"
#include "plan/place.h"

namespace loratrain {

namespace {

constexpr std::chrono::microseconds between_looks_at_exchange{20};

}  // namespace

GradientExchange::GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan,
                                   std::int64_t at_once)
    : job_(job),
      plan_(plan),
      at_once_(at_once > 0 ? at_once : exchanged_at_once(plan)),
      rank_(mpi.rank()),
      ranks_(mpi.size()),
      order_(ranks_in_order(plan)),
      exchange_(mpi) {
    LORATRAIN_CHECK(at_once_ <= exchanged_at_once(plan), at_once_, " values at a time");
    all_numbers_.resize(own_numbers_.size() * static_cast<std::size_t>(ranks_));
}

const ExchangeRoute& GradientExchange::route_of(AdapterId adapter) {
    const auto known = routes_.find(adapter);
    if (known != routes_.end()) return known->second;
    ExchangeRoute route(grad_units(job_.adapter(adapter), adapter, plan_), ranks_, at_once_);
    return routes_.emplace(adapter, std::move(route)).first->second;
}

void GradientExchange::begin(Own own) {
    Batch& batch = batches_.emplace_back(Batch{std::move(own)});
    batch.route = &route_of(batch.own.adapter);
    begin_sums(batch);
    poll();
}

void GradientExchange::poll() {
    while (over_.size() < batches_.size() && go_on(batches_[over_.size()])) continue;
}

bool GradientExchange::over(std::int32_t batch) {
    LORATRAIN_CHECK(!batches_.empty() && batches_.front().own.batch == batch, "batch ", batch,
                    " is not the first one to be summed");
    poll();
    return !over_.empty();
}

GradientExchange::Sums GradientExchange::finish(std::int32_t batch,
                                                const std::function<void()>& meanwhile) {
    if (!over(batch)) {
        const activity::Waiting waiting;
        while (!over(batch)) {
            if (meanwhile) meanwhile();
            std::this_thread::sleep_for(between_looks_at_exchange);
        }
    }
    store(batches_.front());
    batches_.pop_front();
    const Sums sums = over_.front();
    over_.pop_front();
    return sums;
}

/// One step; false where others have to be waited for.
bool GradientExchange::go_on(Batch& batch) {
    switch (batch.phase) {
        case Phase::computing:
            if (!computed() || (batch.own.loss && !batch.own.loss->ready())) return false;
            batch.phase = Phase::summing;
            return true;
        case Phase::summing:
            if (!go_on_summing(batch)) return false;
            if (summed()) begin_gathering(batch);
            return true;
        case Phase::gathering:
            if (!exchange_.done()) return false;
            over_.push_back(sums());
            batch.phase = Phase::over;
            return true;
        case Phase::over:
            break;
    }
    return false;
}

void GradientExchange::begin_gathering(Batch& batch) {
    const auto* loss =
        static_cast<const double*>(batch.own.loss ? batch.own.loss->value() : nullptr);
    own_numbers_ = {batch.squares, loss == nullptr ? 0.0 : *loss};
    exchange_.begin_all_gather(own_numbers_, all_numbers_);
    batch.phase = Phase::gathering;
}

GradientExchange::Sums GradientExchange::sums() const {
    Sums sums;
    for (const std::int32_t rank : order_) {
        const std::size_t i = static_cast<std::size_t>(rank) * own_numbers_.size();
        sums.squares += all_numbers_[i];
        sums.loss += all_numbers_[i + 1];
    }
    return sums;
}

std::unique_ptr<GradientExchange> make_gradient_exchange(const MpiSession& mpi, const Job& job,
                                                         const Plan& plan, Backend& backend,
                                                         std::int64_t at_once) {
    auto on_device = make_device_gradient_exchange(mpi, job, plan, backend, at_once);
    if (on_device) return on_device;
    return make_host_gradient_exchange(mpi, job, plan, backend, at_once);
}

}  // namespace loratrain
