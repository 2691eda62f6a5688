#include <algorithm>
#include <utility>

#include "plan/pack/pack_variants.h"
#include "plan/timing/pipeline_time.h"

namespace loratrain {

namespace {

constexpr std::size_t most_simulations = 256;
constexpr std::size_t least_simulations = 16;
constexpr std::size_t most_computations = 1U << 20U;  ///< in all of these

/// As many as take no longer together on many stages than on few.
std::size_t simulations_of(const PipelineLoad& load) {
    const std::size_t count = most_computations / std::max<std::size_t>(1, load.forward.size());
    return std::clamp(count, least_simulations, most_simulations);
}

class Merging {
  public:
    Merging(const PackRules& rules, const BlockItems& block, const std::vector<Bins>& packed)
        : rules_(rules), block_(block), packed_(packed) {}

    Merged run() {
        if (packed_.empty()) return {};
        load_ = pipeline_load(rules_, block_, concatenate(packed_));
        makespan_ = pipeline_time(load_).makespan;
        std::int32_t merges = 0;
        const std::size_t stride = 1 + packed_.size() / simulations_of(load_);
        for (std::size_t p = 0; p + 1 < packed_.size(); p += stride) {
            merges += merge_if_good(p, std::min(p + stride, packed_.size() - 1));
        }
        return {concatenate(packed_), merges};
    }

  private:
    /// Of portions from `p` to before `last` with those behind them, where that takes no longer.
    std::int32_t merge_if_good(std::size_t p, std::size_t last) {
        const std::vector<Bins> before(at(p), at(last + 1));
        const std::size_t first_changed = first_ + (packed_[p].empty() ? 0 : packed_[p].size() - 1);
        std::int32_t merges = 0;
        for (std::size_t q = p; q < last; ++q) merges += merge(q) ? 1 : 0;
        if (merges > 0 && !takes_no_longer(first_changed, last + 1)) {
            std::copy(before.begin(), before.end(), at(p));
            merges = 0;
        }
        for (std::size_t q = p; q < last; ++q) first_ += packed_[q].size();
        return merges;
    }

    std::vector<Bins>::iterator at(std::size_t p) {
        return packed_.begin() + static_cast<std::ptrdiff_t>(p);
    }

    /// With bins from `first_changed` on that have changed, but for those of portions from `alike`.
    bool takes_no_longer(std::size_t first_changed, std::size_t alike) {
        std::size_t bins_alike = 0;
        for (std::size_t q = alike; q < packed_.size(); ++q) bins_alike += packed_[q].size();
        PipelineLoad changed =
            changed_load(rules_, block_, concatenate(packed_), load_, first_changed, bins_alike);
        const auto time = pipeline_time_within(changed, {}, makespan_);
        if (!time) return false;
        load_ = std::move(changed);
        makespan_ = time->makespan;
        return true;
    }

    std::int64_t tokens(const std::vector<std::int32_t>& bin) const {
        std::int64_t sum = 0;
        for (const std::int32_t item : bin) sum += block_.item(item).tokens;
        return sum;
    }

    bool may_join(const std::vector<std::int32_t>& bin, std::int32_t item) const {
        return std::none_of(bin.begin(), bin.end(), [&](std::int32_t other) {
            return block_.item(other).batch != block_.item(item).batch &&
                   block_.batch_of(other).adapter == block_.batch_of(item).adapter;
        });
    }

    /// Moves samples of the last bin of portion `later` into the last bin before that portion.
    bool merge(std::size_t p) {
        Bins& later = packed_[p + 1];
        if (packed_[p].empty() || later.empty()) return false;
        std::vector<std::int32_t>& into = packed_[p].back();
        std::vector<std::int32_t>& from = later.back();
        std::stable_sort(from.begin(), from.end(), [&](std::int32_t a, std::int32_t b) {
            return block_.item(a).tokens < block_.item(b).tokens;
        });
        std::int64_t room = block_.capacity - tokens(into);
        std::vector<std::int32_t> left;
        const std::size_t before = into.size();
        for (const std::int32_t item : from) {
            if (block_.item(item).tokens <= room && may_join(into, item)) {
                room -= block_.item(item).tokens;
                into.push_back(item);
            } else {
                left.push_back(item);
            }
        }
        from = std::move(left);
        if (from.empty()) later.pop_back();
        return into.size() > before;
    }

    const PackRules& rules_;
    const BlockItems& block_;
    std::vector<Bins> packed_;
    PipelineLoad load_;  ///< of packed_
    std::int64_t makespan_ = 0;
    std::size_t first_ = 0;  ///< bin of the portion that is next
};

}  // namespace

Merged merge_portions(const PackRules& rules, const BlockItems& block,
                      const std::vector<Bins>& packed) {
    return Merging(rules, block, packed).run();
}

}  // namespace loratrain
