#pragma once

#include "backend/backend.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// Routes of tokens to experts, as pointers to the arrays that `layout` has from `start` on. Sizes
/// are those of `of`; tiles, counters and entries stay null.
inline ExpertRoutes routes_at(const RoutesLayout& layout, void* start, const ExpertRoutes& of) {
    const auto floats = [&](std::uint64_t offset) {
        return reinterpret_cast<float*>(static_cast<char*>(start) + offset);
    };
    const auto numbers = [&](std::uint64_t offset) {
        return reinterpret_cast<std::int32_t*>(static_cast<char*>(start) + offset);
    };
    return {of.tokens,
            of.experts,
            of.per_token,
            floats(layout.probabilities),
            floats(layout.weights),
            numbers(layout.chosen),
            numbers(layout.places),
            numbers(layout.rows),
            numbers(layout.offsets),
            nullptr,
            nullptr,
            nullptr,
            of.before,
            of.others};
}

}  // namespace loratrain
