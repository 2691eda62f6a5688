#include "backend/cuda/cuda_backend.h"

#ifdef LORATRAIN_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace loratrain {

#ifdef LORATRAIN_WITH_NVTX

void CudaBackend::push_range(const char* name, std::int64_t number) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = number;
    nvtxRangePushEx(&attributes);
}

void CudaBackend::pop_range() {
    nvtxRangePop();
}

#else

void CudaBackend::push_range(const char* /*name*/, std::int64_t /*number*/) {}
void CudaBackend::pop_range() {}

#endif

}  // namespace loratrain
