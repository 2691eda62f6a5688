#include "backend/backend.h"

#include "base/error.h"

namespace loratrain {

void Backend::shard_statistics(const ShardedCrossEntropy& /*op*/) {
    throw Error(cat("no lanes of a stage on ", description()));
}

void Backend::sharded_cross_entropy(const ShardedCrossEntropy& /*op*/) {
    throw Error(cat("no lanes of a stage on ", description()));
}

}  // namespace loratrain
