#pragma once

#include <cstdint>

#include "plan/pack/block_items.h"

namespace loratrain {

/// Packings of one adapter a microbatch, by the policies' rules (pack_block.h).

Bins pack_sequential(const BlockItems& block);
Bins pack_one_f_one_b(const BlockItems& block, std::int32_t stages);
Bins pack_mlora(const BlockItems& block, std::int32_t stages);

}  // namespace loratrain
