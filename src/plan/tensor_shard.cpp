#include "plan/tensor_shard.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t granule = 8;  ///< columns: one 16-byte load of bf16

bool divides(std::int64_t divisor, std::int64_t number) {
    return number % divisor == 0;
}

}  // namespace

bool can_shard(const ModelSpec& model, std::int32_t tensor) {
    if (tensor == 1) return true;
    return tensor > 1 && divides(tensor, model.heads) &&
           (divides(tensor, model.kv_heads) || divides(model.kv_heads, tensor)) &&
           divides(granule * tensor, model.intermediate_size) &&
           divides(granule, model.q_size() / tensor);
}

ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor) {
    LORATRAIN_CHECK(can_shard(model, tensor), "the model cannot be shared by ", tensor, " lanes");
    ModelSpec lane = model;
    lane.heads /= tensor;
    lane.kv_heads = std::max<std::int64_t>(1, model.kv_heads / tensor);
    lane.intermediate_size /= tensor;
    return lane;
}

}  // namespace loratrain
