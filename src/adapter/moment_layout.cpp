#include "adapter/moment_layout.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/dynamic_map.h"

namespace loratrain {

namespace {

std::int64_t blocks_of(std::int64_t count) {
    return ceil_div(count, dynamic_block);
}

const DynamicMap& map_of(StatePart part) {
    return part == StatePart::first_moments ? signed_dynamic_map() : unsigned_dynamic_map();
}

/// Calls visit(first number, how many, number of the block) for the blocks of a run.
template <class Visit>
void for_each_block(const MomentLayout::Run& run, const Visit& visit) {
    for (std::int64_t i = 0; i < run.range.count; i += dynamic_block) {
        visit(i, static_cast<std::size_t>(std::min(dynamic_block, run.range.count - i)),
              run.block + i / dynamic_block);
    }
}

}  // namespace

MomentLayout::MomentLayout(const AdapterLayout& layout,
                           const std::function<bool(const PlacedTensor&)>& is_coded) {
    const std::span<const PlacedTensor> tensors = layout.tensors(StatePart::gradients);
    std::size_t t = 0;
    for (std::size_t group = 0; group < layout.rate_groups().size(); ++group) {
        const ArrayRange& whole = layout.rate_groups()[group];
        std::size_t runs = 0;
        for (; t < tensors.size() && tensors[t].range.first < whole.first + whole.count; ++t) {
            const std::int64_t count = tensors[t].range.count;
            if (count == 0) continue;
            const bool coded = is_coded(tensors[t]);
            const bool joins = runs > 0 && runs_.back().coded == coded &&
                               (!coded || runs_.back().range.count % dynamic_block == 0);
            if (!joins) {
                runs_.push_back(
                    {coded, group, {tensors[t].range.first, 0}, coded ? codes_ : plain_, blocks_});
                ++runs;
            }
            runs_.back().range.count += count;
            (coded ? codes_ : plain_) += count;
            if (coded) blocks_ += blocks_of(count);
        }
        if (runs == 0) runs_.push_back({false, group, whole, plain_, blocks_});
    }
}

void MomentLayout::place(const Run& run, float* first_moments, float* second_moments,
                         AdamW8bit& op) const {
    if (!run.coded) {
        op.step.first_moments = first_moments + run.first;
        op.step.second_moments = second_moments + run.first;
        return;
    }
    const auto codes = [&](float* moments) {
        return reinterpret_cast<std::uint8_t*>(moments + plain_ + blocks_) + run.first;
    };
    op.first_scales = first_moments + plain_ + run.block;
    op.second_scales = second_moments + plain_ + run.block;
    op.first_codes = codes(first_moments);
    op.second_codes = codes(second_moments);
}

std::vector<float> MomentLayout::decoded(StatePart part, std::span<const float> array) const {
    std::vector<float> numbers(static_cast<std::size_t>(plain_ + codes_));
    const float* scales = array.data() + plain_;
    const auto* codes = reinterpret_cast<const std::uint8_t*>(scales + blocks_);
    for (const Run& run : runs_) {
        float* to = numbers.data() + run.range.first;
        if (!run.coded) {
            std::copy_n(array.data() + run.first, run.range.count, to);
            continue;
        }
        for_each_block(run, [&](std::int64_t i, std::size_t count, std::int64_t block) {
            decode_block(map_of(part), {codes + run.first + i, count}, scales[block], to + i);
        });
    }
    return numbers;
}

std::vector<float> MomentLayout::encoded(StatePart part, std::span<const float> numbers) const {
    std::vector<float> array(static_cast<std::size_t>(words()));
    float* scales = array.data() + plain_;
    auto* codes = reinterpret_cast<std::uint8_t*>(scales + blocks_);
    for (const Run& run : runs_) {
        const float* from = numbers.data() + run.range.first;
        if (!run.coded) {
            std::copy_n(from, run.range.count, array.data() + run.first);
            continue;
        }
        for_each_block(run, [&](std::int64_t i, std::size_t count, std::int64_t block) {
            scales[block] = encode_again(map_of(part), {from + i, count}, codes + run.first + i);
        });
    }
    return array;
}

}  // namespace loratrain
