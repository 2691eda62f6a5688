#include "data/loader.h"

namespace loratrain {

PackedBatch pack_layout(const Microbatch& microbatch) {
    PackedBatch batch;
    const auto tokens = static_cast<std::size_t>(microbatch.tokens());
    batch.positions.reserve(tokens);
    batch.sample_ids.reserve(tokens);
    batch.offsets.reserve(static_cast<std::size_t>(microbatch.samples()) + 1);
    batch.offsets.push_back(0);
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            for (std::int32_t i = 0; i < sample.tokens; ++i) {
                batch.positions.push_back(i);
                batch.sample_ids.push_back(sample.index);
            }
            batch.offsets.push_back(batch.offsets.back() + sample.tokens);
        }
    }
    return batch;
}

}  // namespace loratrain
