#include "backend/ops/token_rows.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"

namespace loratrain {

namespace {

const TokenSlot& slot_of(const TokenRows& of, const LoraSegment& segment) {
    return of.slots[static_cast<std::size_t>(segment.slot)];
}

/// Place of a token among the slot's; -1 = it is none of them.
std::int64_t place_of(const TokenSlot& slot, std::int32_t token) {
    if (token < 0) return -1;
    const auto found = std::find(slot.tokens.begin(), slot.tokens.end(), token);
    return found == slot.tokens.end() ? -1 : found - slot.tokens.begin();
}

}  // namespace

void CpuBackend::place_tokens(const PlaceTokens& op) {
    require_f32({&op.x});
    for (const LoraSegment& segment : op.of.segments) {
        const TokenSlot& slot = slot_of(op.of, segment);
        if (slot.tokens.empty()) continue;
        for (std::int64_t t = segment.begin; t < segment.end; ++t) {
            const std::int64_t i = place_of(slot, op.ids[t]);
            if (i < 0) continue;
            const float* row = slot.rows + i * op.x.cols;
            std::transform(row, row + op.x.cols, op.x.f32() + t * op.x.ld,
                           [&](float value) { return op.scale * value; });
        }
    }
}

void CpuBackend::place_tokens_backward(const PlaceTokens& op) {
    require_f32({&op.x});
    for (const LoraSegment& segment : op.of.segments) {
        const TokenSlot& slot = slot_of(op.of, segment);
        parallel_for(threads_, std::ssize(slot.tokens), [&](std::int64_t i) {
            const std::int32_t token = slot.tokens[static_cast<std::size_t>(i)];
            if (token == op.still || token < 0) return;
            for (std::int64_t t = segment.begin; t < segment.end; ++t) {
                if (op.ids[t] != token) continue;
                add_scaled_values(slot.gradient + i * op.x.cols, op.x.f32() + t * op.x.ld, op.scale,
                                  op.x.cols);
            }
        });
    }
}

void CpuBackend::token_logits(const TokenLogits& op) {
    require_f32({&op.x, &op.logits});
    for (const LoraSegment& segment : op.of.segments) {
        const TokenSlot& slot = slot_of(op.of, segment);
        parallel_for(threads_, segment.end - segment.begin, [&](std::int64_t row) {
            const std::int64_t t = segment.begin + row;
            const float* x = op.x.f32() + t * op.x.ld;
            const float* of_token = slot.rows;
            for (const std::int32_t token : slot.tokens) {
                if (token >= 0) {
                    float& logit = op.logits.f32()[t * op.logits.ld + token];
                    logit = op.scale * dot(x, of_token, op.x.cols);
                }
                of_token += op.x.cols;
            }
        });
    }
}

void CpuBackend::token_logits_backward(const TokenLogitsBackward& op) {
    require_f32({&op.x, &op.d_logits, &op.dx});
    const std::int64_t cols = op.x.cols;
    for (std::int64_t t = 0; t < op.dx.rows; ++t) {
        std::fill_n(op.dx.f32() + t * op.dx.ld, cols, 0.0F);
    }
    for (const LoraSegment& segment : op.of.segments) {
        const TokenSlot& slot = slot_of(op.of, segment);
        const auto is_here = [&](std::int64_t i) {
            return slot.tokens[static_cast<std::size_t>(i)] >= 0;
        };
        const auto d_logit = [&](std::int64_t t, std::int64_t i) -> float& {
            return op.d_logits.f32()[t * op.d_logits.ld + slot.tokens[static_cast<std::size_t>(i)]];
        };
        parallel_for(threads_, segment.end - segment.begin, [&](std::int64_t row) {
            const std::int64_t t = segment.begin + row;
            for (std::int64_t i = 0; i < std::ssize(slot.tokens); ++i) {
                if (!is_here(i)) continue;
                add_scaled_values(op.dx.f32() + t * op.dx.ld, slot.rows + i * cols,
                                  op.scale * d_logit(t, i), cols);
            }
        });
        parallel_for(threads_, std::ssize(slot.tokens), [&](std::int64_t i) {
            if (!is_here(i)) return;
            for (std::int64_t t = segment.begin; t < segment.end; ++t) {
                add_scaled_values(slot.gradient + i * cols, op.x.f32() + t * op.x.ld,
                                  op.scale * d_logit(t, i), cols);
                d_logit(t, i) = 0.0F;
            }
        });
    }
}

}  // namespace loratrain
