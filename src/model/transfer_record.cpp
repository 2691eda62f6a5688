#include "model/transfer_record.h"

#include <utility>

namespace loratrain {

void TransferRecord::start(HostCopies& link) {
    for (Part* part : {&now_, &before_}) {
        *part = {link.make_clock(), {}};
        part->clock->mark();
    }
    before_.clock->mark();
    start_of_before_ = 0.0;
}

void TransferRecord::add(std::int32_t layer, bool to_host) {
    if (now_.clock != nullptr) now_.copies.push_back({layer, to_host});
}

std::vector<TransferRecord::Transfer> TransferRecord::take() {
    std::vector<Transfer> transfers;
    if (now_.clock == nullptr) return transfers;
    const std::vector<double> points = before_.clock->read();
    for (std::size_t i = 0; i < before_.copies.size(); ++i) {
        const Copy& copy = before_.copies[i];
        transfers.push_back({copy.layer, copy.to_host, start_of_before_ + points[1 + 2 * i],
                             start_of_before_ + points[2 + 2 * i]});
    }
    start_of_before_ += points.back();
    before_.copies.clear();
    now_.clock->mark();
    std::swap(now_, before_);
    now_.clock->mark();
    return transfers;
}

}  // namespace loratrain
