#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "comm/text_channel.h"

namespace loratrain {

/// A TextChannel over MPI: texts from rank 0 to all other ranks, and numbers and texts back. Rank 0
/// does not wait for the others. Main threads only. Construction and destruction are collective.
class CommandChannel : public TextChannel {
  public:
    explicit CommandChannel(const MpiSession& mpi);
    ~CommandChannel() override;

    std::int64_t post(std::string text) override;
    void progress() override;
    std::optional<std::string> next_report() override;
    void send_report(std::string text) override;
    std::optional<std::string> arrived() override;

    /// Root: true if `rank` can take the texts up to `number` (default: all) without any further
    /// call on the root.
    bool has_reached(int rank, std::int64_t number = std::numeric_limits<std::int64_t>::max());
    /// Root: waits until the other ranks have taken all posted texts.
    void finish();

    /// Other ranks: waits for the next text; calls `meanwhile` now and then.
    std::string next(const std::function<void()>& meanwhile);
    /// Other ranks: sends a number, which the root may read later.
    void report(int number);
    /// Root: the largest number that a rank has sent so far; 0 = none.
    int reported();

  private:
    struct Posted {
        std::int64_t number = 0;
        std::unique_ptr<std::string> text;
        std::vector<MPI_Request> requests;  ///< by rank, without the root
    };
    struct Arriving {
        std::unique_ptr<std::string> text;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    std::optional<std::string> next_of(int source, int tag);

    const MpiSession& mpi_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    std::int64_t newest_ = 0;
    std::deque<Posted> posted_;
    std::deque<Arriving> arriving_;  ///< from the root, or on the root from the others
    std::deque<std::pair<std::unique_ptr<int>, MPI_Request>> reports_;
    int reported_ = 0;
    std::deque<std::pair<std::unique_ptr<std::string>, MPI_Request>> reporting_;
};

}  // namespace loratrain
