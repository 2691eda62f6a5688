#include "plan/group_adapters.h"

#include <algorithm>
#include <numeric>

namespace loratrain {

namespace {

std::vector<std::int32_t> number_by_first_member(const std::vector<std::int32_t>& group_of) {
    std::vector<std::int32_t> new_number(group_of.size(), -1);
    std::vector<std::int32_t> result;
    std::int32_t next = 0;
    for (const std::int32_t group : group_of) {
        std::int32_t& number = new_number[static_cast<std::size_t>(group)];
        if (number < 0) number = next++;
        result.push_back(number);
    }
    return result;
}

}  // namespace

std::vector<std::int32_t> group_adapters(std::span<const double> tokens_per_step,
                                         std::int32_t groups) {
    std::vector<std::size_t> by_size(tokens_per_step.size());
    std::iota(by_size.begin(), by_size.end(), 0);
    std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
        return tokens_per_step[a] > tokens_per_step[b];
    });
    std::vector<double> load(static_cast<std::size_t>(groups), 0.0);
    std::vector<std::int32_t> members(load.size(), 0);
    std::vector<std::int32_t> group_of(tokens_per_step.size());
    for (const std::size_t adapter : by_size) {
        std::size_t lightest = 0;
        for (std::size_t g = 1; g < load.size(); ++g) {
            if (std::pair(load[g], members[g]) < std::pair(load[lightest], members[lightest])) {
                lightest = g;
            }
        }
        load[lightest] += tokens_per_step[adapter];
        ++members[lightest];
        group_of[adapter] = static_cast<std::int32_t>(lightest);
    }
    return number_by_first_member(group_of);
}

}  // namespace loratrain
