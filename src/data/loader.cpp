#include "data/loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int32_t pad_token = 0;

/// The order of reading and the queue between the two threads.
class Reader {
  public:
    Reader(const DatasetFiles& files, const std::vector<DatasetId>& dataset_of_adapter,
           bool with_tokens, Loader::Evaluates evaluates, std::size_t depth)
        : files_(files),
          dataset_of_adapter_(dataset_of_adapter),
          with_tokens_(with_tokens),
          evaluates_(evaluates),
          depth_(depth),
          thread_([this] { run(); }) {}

    void add(const std::vector<Microbatch>& microbatches) {
        {
            const std::lock_guard lock(mutex_);
            unread_.insert(unread_.end(), microbatches.begin(), microbatches.end());
            remaining_ += microbatches.size();
        }
        room_.notify_one();
    }

    ~Reader() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        room_.notify_one();
        thread_.join();
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    /// While files and datasets may change.
    std::unique_lock<std::mutex> pause() { return std::unique_lock(files_mutex_); }

    PackedBatch next() {
        std::unique_lock lock(mutex_);
        LORATRAIN_CHECK(remaining_ > 0, "all microbatches have been read");
        ready_.wait(lock, [this] { return !queue_.empty() || error_ != nullptr; });
        if (queue_.empty()) std::rethrow_exception(error_);
        PackedBatch batch = std::move(queue_.front());
        queue_.pop_front();
        --remaining_;
        lock.unlock();
        room_.notify_one();
        return batch;
    }

  private:
    void run() {
        try {
            while (const std::optional<Microbatch> microbatch = next_to_read()) {
                push(read(*microbatch));
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            error_ = std::current_exception();
            ready_.notify_one();
        }
    }

    /// Waits for room and work; none when the reading is to end.
    std::optional<Microbatch> next_to_read() {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] { return stop_ || (!unread_.empty() && queue_.size() < depth_); });
        if (stop_) return std::nullopt;
        Microbatch next = std::move(unread_.front());
        unread_.pop_front();
        return next;
    }

    void push(PackedBatch batch) {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(batch));
        }
        ready_.notify_one();
    }

    TokenSample sample(AdapterId adapter, bool evaluation, std::int64_t number_of_sample) const {
        LORATRAIN_CHECK(index(adapter) < dataset_of_adapter_.size(), "adapter ", number(adapter));
        const std::size_t id = index(dataset_of_adapter_[index(adapter)]);
        const Dataset& train = files_.train.at(id);
        if (!evaluation) return train.read(number_of_sample);
        if (evaluates_ == Loader::Evaluates::all_samples) {
            const std::int64_t trained = std::ssize(train.infos());
            if (number_of_sample < trained) return train.read(number_of_sample);
            number_of_sample -= trained;
        }
        const Dataset* eval = files_.eval.at(id).get();
        LORATRAIN_CHECK(eval != nullptr, "dataset ", id, " has no evaluation file");
        return eval->read(number_of_sample);
    }

    PackedBatch read(const Microbatch& microbatch) const {
        PackedBatch batch = pack_layout(microbatch);
        if (!with_tokens_) return batch;
        const std::lock_guard reading(files_mutex_);
        batch.token_ids.reserve(batch.positions.size());
        batch.targets.reserve(batch.positions.size());
        for (const Segment& segment : microbatch.segments) {
            for (const SampleRef& reference : segment.samples) {
                append(sample(segment.adapter, microbatch.evaluation, reference.index), reference,
                       batch);
            }
        }
        return batch;
    }

    static void append(const TokenSample& sample, const SampleRef& reference, PackedBatch& batch) {
        const auto tokens = static_cast<std::int64_t>(sample.input_ids.size());
        LORATRAIN_CHECK(tokens <= reference.tokens, "sample ", reference.index, " has ", tokens,
                        " tokens, planned were ", reference.tokens);
        const auto pads = static_cast<std::size_t>(reference.tokens - tokens);
        append_values(sample.weights, 1.0F, reference.tokens, batch, batch.weights);
        append_values(sample.advantages, 0.0F, reference.tokens, batch, batch.advantages);
        append_values(sample.logprobs, 0.0F, reference.tokens, batch, batch.logprobs);
        batch.token_ids.insert(batch.token_ids.end(), sample.input_ids.begin(),
                               sample.input_ids.end());
        batch.token_ids.insert(batch.token_ids.end(), pads, pad_token);
        batch.targets.insert(batch.targets.end(), sample.labels.begin() + 1, sample.labels.end());
        batch.targets.insert(batch.targets.end(), pads + 1, no_target);
    }

    /// As its targets, which come behind and have `rows` rows; `usual` where a sample has none.
    static void append_values(const std::vector<float>& values, float usual, std::int32_t rows,
                              const PackedBatch& batch, std::vector<float>& all) {
        if (values.empty() && all.empty()) return;
        all.resize(batch.targets.size(), usual);
        if (!values.empty()) all.insert(all.end(), values.begin() + 1, values.end());
        all.resize(batch.targets.size() + static_cast<std::size_t>(rows), usual);
    }

    const DatasetFiles& files_;
    const std::vector<DatasetId>& dataset_of_adapter_;
    bool with_tokens_;
    Loader::Evaluates evaluates_;
    std::size_t depth_;

    mutable std::mutex files_mutex_;
    std::mutex mutex_;
    std::condition_variable ready_;
    std::condition_variable room_;
    std::deque<Microbatch> unread_;
    std::deque<PackedBatch> queue_;
    std::exception_ptr error_;
    bool stop_ = false;
    std::size_t remaining_ = 0;  ///< microbatches that next() has not returned yet
    std::thread thread_;         ///< last: it uses all of the above
};

}  // namespace

std::vector<DatasetId> datasets_of_adapters(const Job& job) {
    std::vector<DatasetId> datasets;
    for (const AdapterJob& adapter : job.adapters) datasets.push_back(adapter.dataset);
    return datasets;
}

struct Loader::State {
    const DatasetFiles& files;
    std::vector<DatasetId> dataset_of_adapter;
    bool with_tokens;
    std::size_t depth;
    std::unique_ptr<Reader> reader;
};

Loader::Loader(const DatasetFiles& files, std::span<const DatasetId> dataset_of_adapter,
               bool with_tokens, int depth)
    : state_(new State{files,
                       {dataset_of_adapter.begin(), dataset_of_adapter.end()},
                       with_tokens,
                       static_cast<std::size_t>(depth),
                       nullptr}) {
    LORATRAIN_CHECK(depth >= 1, "depth ", depth);
}

Loader::~Loader() = default;

void Loader::start(const Window& window, Evaluates evaluates) {
    if (window.begins) {
        state_->reader.reset();
        state_->reader = std::make_unique<Reader>(state_->files, state_->dataset_of_adapter,
                                                  state_->with_tokens, evaluates, state_->depth);
    }
    LORATRAIN_CHECK(state_->reader != nullptr, "the window continues none");
    state_->reader->add(window.microbatches);
}

void Loader::grow(const std::function<std::vector<DatasetId>()>& add) {
    std::unique_lock<std::mutex> paused;
    if (state_->reader) paused = state_->reader->pause();
    state_->dataset_of_adapter = add();
}

void Loader::stop() {
    state_->reader.reset();
}

void Loader::restart(std::span<const DatasetId> dataset_of_adapter) {
    stop();
    state_->dataset_of_adapter.assign(dataset_of_adapter.begin(), dataset_of_adapter.end());
}

PackedBatch Loader::next() {
    LORATRAIN_CHECK(state_->reader != nullptr, "start() comes first");
    return state_->reader->next();
}

PackedBatch pack_layout(const Microbatch& microbatch) {
    PackedBatch batch;
    const auto tokens = static_cast<std::size_t>(microbatch.tokens());
    batch.positions.reserve(tokens);
    batch.sample_ids.reserve(tokens);
    batch.offsets.reserve(static_cast<std::size_t>(microbatch.samples()) + 1);
    batch.offsets.push_back(0);
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            for (std::int32_t i = 0; i < sample.tokens; ++i) {
                batch.positions.push_back(i);
                batch.sample_ids.push_back(sample.index);
            }
            batch.offsets.push_back(batch.offsets.back() + sample.tokens);
        }
    }
    return batch;
}

}  // namespace loratrain
