#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace loratrain {

/// Which streamed layer comes into which buffer, and when: pure, so that simulation and runtime do
/// the same. Uses are known ahead; a layer comes as soon as a buffer is free whose layer is needed
/// later than it (Belady 1966), so that what was used last in forward is there for backward.
class StreamOrder {
  public:
    explicit StreamOrder(std::int32_t buffers);

    struct Load {
        std::int32_t layer = 0;
        std::int32_t buffer = 0;
    };

    /// The layers that are used from now on, in order, in place of what was expected before.
    void expect(std::vector<std::int32_t> layers);
    /// Buffers hold nothing from now on, and nothing is expected.
    void forget();
    /// The next load that can begin now; its buffer is of no other use from here on. None: all
    /// buffers hold what is needed sooner. To be asked until there is none, after expect() and
    /// done().
    std::optional<Load> next_load();
    /// The first of the expected layers is used now; its buffer, which has been loaded.
    std::int32_t use(std::int32_t layer);
    /// That use has ended.
    void done();

    /// Where a layer is, -1: in none.
    std::int32_t buffer_of(std::int32_t layer) const;
    bool expects(std::int32_t layer) const;  ///< as the next one

  private:
    std::size_t next_use(std::int32_t layer) const;

    std::vector<std::int32_t> held_;  ///< per buffer, -1 = nothing
    std::vector<std::int32_t> expected_;
    std::size_t first_ = 0;     ///< of expected_ that is not done
    std::int32_t in_use_ = -1;  ///< buffer
};

}  // namespace loratrain
