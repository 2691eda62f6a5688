#pragma once

#include <memory>

#include "train/gradient_exchange.h"

namespace loratrain {

/// Null where the backend is not a device's, or there is nothing to connect devices by. Once all
/// ranks have come to a batch, the whole of it is queued beside their computation: packed, sent to
/// the owners, added, sent back, unpacked.
std::unique_ptr<GradientExchange> make_device_gradient_exchange(const MpiSession& mpi,
                                                                const Job& job, const Plan& plan,
                                                                Backend& backend,
                                                                std::int64_t at_once);

}  // namespace loratrain
