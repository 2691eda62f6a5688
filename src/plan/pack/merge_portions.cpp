#include <algorithm>

#include "plan/pack/pack_variants.h"

namespace loratrain {

namespace {

constexpr std::size_t most_simulations = 256;

class Merging {
  public:
    Merging(const PackRules& rules, const BlockItems& block, const std::vector<Bins>& packed)
        : rules_(rules), block_(block), packed_(packed) {}

    Merged run() {
        Merged result;
        std::int64_t makespan = simulated();
        const std::size_t stride = 1 + packed_.size() / most_simulations;
        for (std::size_t p = 0; p + 1 < packed_.size(); p += stride) {
            const std::vector<Bins> before = packed_;
            std::int32_t merges = 0;
            for (std::size_t q = p; q < std::min(p + stride, packed_.size() - 1); ++q) {
                merges += merge(q) ? 1 : 0;
            }
            if (merges == 0) continue;
            const std::int64_t now = simulated();
            if (now > makespan) {
                packed_ = before;
                continue;
            }
            makespan = now;
            result.merges += merges;
        }
        result.bins = concatenate(packed_);
        return result;
    }

  private:
    std::int64_t simulated() const {
        return pipeline_time(pipeline_load(rules_, block_, concatenate(packed_))).makespan;
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
};

}  // namespace

Merged merge_portions(const PackRules& rules, const BlockItems& block,
                      const std::vector<Bins>& packed) {
    return Merging(rules, block, packed).run();
}

}  // namespace loratrain
