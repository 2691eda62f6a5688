#include "adapter/host_gradients.h"

namespace loratrain {

HostGradients::HostGradients(Backend& backend, float* gradients, std::size_t count)
    : backend_(backend), gradients_(gradients), count_(count) {
    if (backend.native_stream() == nullptr) return;
    const ReadPart all{gradients, count * sizeof(float)};
    copy_ = backend.read_later({&all, 1});
    sums_.resize(count);
}

bool HostGradients::ready() {
    return !copy_ || copy_->ready();
}

std::span<const float> HostGradients::values() {
    return {copy_ ? static_cast<const float*>(copy_->value()) : gradients_, count_};
}

std::span<float> HostGradients::sums() {
    return {copy_ ? sums_.data() : gradients_, count_};
}

void HostGradients::store() {
    if (copy_) backend_.upload(gradients_, sums_.data(), count_ * sizeof(float));
}

}  // namespace loratrain
