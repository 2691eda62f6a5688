#include "train/gradient_exchange.h"

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "comm/rank_exchange.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Copies between a tensor and a unit's values one behind the other.
CopyBlock cut_of(const UnitCopy& copy, float* gradients, float* values) {
    const TensorCut& cut = copy.cut;
    const Slice own = cut.own.only();
    float* first = gradients + copy.first + own.first * cut.inner;
    const std::int64_t cols = own.count * cut.inner;
    return {first, values, cut.outer, cols, cut.extent * cut.inner, cols};
}

CopyBlock reversed(const CopyBlock& block) {
    return {block.to,    const_cast<float*>(block.from),  // NOLINT(*-const-cast)
            block.rows,  block.cols,
            block.to_ld, block.from_ld};
}

class DeviceGradientExchange final : public GradientExchange {
  public:
    DeviceGradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan,
                           Backend& backend, std::int64_t at_once,
                           std::unique_ptr<SideStream> stream,
                           std::unique_ptr<DeviceExchange> exchange)
        : GradientExchange(mpi, job, plan, at_once),
          backend_(backend),
          stream_(std::move(stream)),
          exchange_(std::move(exchange)),
          memory_(backend.allocate(exchange_bytes(plan), "exchange of gradients")),
          all_(static_cast<std::size_t>(mpi.size())) {
        own_ = memory_.as<float>();
        owned_ = own_ + exchanged_at_once(plan);
        squares_ = reinterpret_cast<double*>(owned_ + exchanged_at_once(plan));
        workspace_ = squares_ + 1;
        use_all_code();
    }

  private:
    /// A rank has come to a batch once its part is computed: what others queue then has nobody to
    /// wait for.
    enum class Step : std::uint8_t { begun, meeting, queued, summed };

    /// What is queued for a chunk of an adapter's route.
    struct ChunkTables {
        ExchangeCounts counts;
        std::vector<CopyBlock> in;   ///< own gradients to where they are sent from
        std::vector<CopyBlock> out;  ///< and back
        std::vector<AddParts> sums;
    };
    struct RouteTables {
        float* gradients = nullptr;
        std::vector<ChunkTables> chunks;
    };

    bool waits_for_backend() const override { return false; }
    void begin_sums(const Batch& /*batch*/) override {
        computed_.push_back(backend_.read_later({}));
    }
    bool computed() override { return computed_.front()->ready(); }

    bool go_on_summing(Batch& batch) override {
        if (step_ == Step::summed) step_ = Step::begun;
        switch (step_) {
            case Step::begun:
                computed_.pop_front();
                host_exchange().begin_all_gather(come_, all_);
                step_ = Step::meeting;
                return true;
            case Step::meeting:
                if (!host_exchange().done()) return false;
                queue(batch);
                step_ = Step::queued;
                return true;
            case Step::queued:
                exchange_->check_peers();
                if (!result_->ready()) return false;
                batch.squares = *static_cast<const double*>(result_->value());
                result_.reset();
                step_ = Step::summed;
                return true;
            case Step::summed:
                break;
        }
        return false;
    }

    bool summed() const override { return step_ == Step::summed; }
    void store(const Batch& /*batch*/) override {}

    /// The driver loads code at its first use, and may wait for the device then: not while others
    /// wait for this rank.
    void use_all_code() {
        const CopyBlock block{own_, owned_, 1, 1, 1, 1};
        const AddParts sum{own_, {0}, 1};
        stream_->zero(squares_, sizeof(double));
        stream_->copy({&block, 1});
        stream_->add_parts({&sum, 1}, squares_, workspace_);
        const ReadPart part{squares_, sizeof(double)};
        stream_->read_later({&part, 1})->value();
    }

    void queue(const Batch& batch) {
        stream_->zero(squares_, sizeof(double));
        for (const ChunkTables& chunk : tables_of(batch).chunks) {
            stream_->copy(chunk.in);
            exchange_->all_to_all(own_, chunk.counts.to_owners, owned_, chunk.counts.from_copies);
            stream_->add_parts(chunk.sums, squares_, workspace_);
            exchange_->all_to_all(owned_, chunk.counts.from_copies, own_, chunk.counts.to_owners);
            stream_->copy(chunk.out);
        }
        const ReadPart part{squares_, sizeof(double)};
        result_ = stream_->read_later({&part, 1});
    }

    /// Made for the adapter's first batch, and again where its gradients have moved.
    const RouteTables& tables_of(const Batch& batch) {
        float* gradients = batch.own.gradients.data();
        const auto [found, is_new] = tables_.try_emplace(batch.route);
        RouteTables& tables = found->second;
        if (!is_new && tables.gradients == gradients) return tables;
        tables = {gradients, {}};
        for (std::size_t c = 0; c < batch.route->chunks(); ++c) {
            tables.chunks.push_back(tables_for(batch.route->chunk(c), gradients));
        }
        return tables;
    }

    ChunkTables tables_for(std::span<const GradUnit> units, float* gradients) const {
        ChunkTables tables{ExchangeCounts(units, rank(), ranks()), {}, {}, {}};
        for_each_copy(units, rank(), tables.counts.to_owners,
                      [&](const GradUnit&, const UnitCopy& copy, std::int64_t place) {
                          tables.in.push_back(cut_of(copy, gradients, own_ + place));
                          tables.out.push_back(reversed(tables.in.back()));
                      });
        for_each_owned(units, rank(), tables.counts.from_copies,
                       [&](const GradUnit& unit, std::vector<std::int64_t>& places) {
                           tables.sums.push_back({owned_, std::move(places), unit.count});
                       });
        return tables;
    }

    Backend& backend_;
    std::unique_ptr<SideStream> stream_;
    std::unique_ptr<DeviceExchange> exchange_;
    Buffer memory_;      ///< exchange_bytes()
    float* own_;         ///< this rank's values, owner after owner
    float* owned_;       ///< values of the units that it owns, copy after copy
    double* squares_;    ///< of the batch under way
    double* workspace_;  ///< SideStream::workspace_bytes
    std::map<const ExchangeRoute*, RouteTables> tables_;
    std::deque<std::unique_ptr<Readback>> computed_;  ///< of batches that are begun, not met
    std::unique_ptr<Readback> result_;
    Step step_ = Step::summed;  ///< of the earliest batch that is not summed
    std::array<double, 1> come_{};
    std::vector<double> all_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_device_gradient_exchange(const MpiSession& mpi,
                                                                const Job& job, const Plan& plan,
                                                                Backend& backend,
                                                                std::int64_t at_once) {
    std::unique_ptr<SideStream> stream = plan.joint ? backend.make_side_stream() : nullptr;
    if (!stream) return nullptr;
    std::unique_ptr<DeviceExchange> exchange = make_nccl_exchange(mpi, stream->native_stream());
    if (!exchange) return nullptr;
    return std::make_unique<DeviceGradientExchange>(mpi, job, plan, backend, at_once,
                                                    std::move(stream), std::move(exchange));
}

}  // namespace loratrain
