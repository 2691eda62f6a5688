#include "backend/buffer.h"

#include "backend/backend.h"

namespace loratrain {

Buffer::~Buffer() {
    if (owner_ != nullptr) owner_->release(data_, bytes_);
}

}  // namespace loratrain
