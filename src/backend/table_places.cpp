#include "backend/table_places.h"

#include "base/error.h"

namespace loratrain {

void TablePlaces::start_op(std::size_t size) {
    LORATRAIN_CHECK(size <= capacity_, "an op's tables of ", size, " bytes in memory of ",
                    capacity_);
    if (used_ + size <= capacity_) return;
    used_ = 0;
    offsets_.clear();
}

TablePlaces::Place TablePlaces::find(std::string_view table) {
    if (table.empty()) return {};
    const auto found = offsets_.find(table);
    if (found != offsets_.end()) return {found->second, false};
    const std::size_t offset = used_;
    LORATRAIN_CHECK(offset + size_of(table.size()) <= capacity_, "a table of ", table.size(),
                    " bytes more than its op was started with");
    used_ += size_of(table.size());
    offsets_.emplace(table, offset);
    return {offset, true};
}

}  // namespace loratrain
