#include "backend/cuda/attention_cudnn.h"

#ifdef LORATRAIN_WITH_CUDNN

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/growing_memory.h"
#include "base/attention_shape.h"
#include "base/device_memory.h"
#include "base/error.h"
#include "base/system.h"

namespace loratrain {

namespace {

namespace graph = cudnn_frontend::graph;
using GraphTensor = std::shared_ptr<graph::Tensor_attributes>;

/// What a graph reads and writes; also its tensor ids.
enum Operand : std::int64_t { q, k, v, o, stats, operand_count };
constexpr std::int64_t lengths_id = 100;
constexpr std::int64_t offsets_id = 200;  ///< + operand

static_assert(operand_count == device_memory::cudnn_operands);

struct Shape {
    std::int64_t samples = 0;
    std::int64_t length = 0;
    std::int64_t tokens = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0.0F;
    std::int64_t window = 0;  ///< of some sample's keys; 0: none
    std::array<std::int64_t, operand_count> ld{};

    auto operator<=>(const Shape&) const = default;

    std::int64_t heads_of(Operand operand) const {
        return operand == k || operand == v ? kv_heads : heads;
    }
};

struct Graph {
    std::unique_ptr<graph::Graph> graph;
    std::int64_t workspace = 0;
    std::string refusal;
};

/// Lengths, and per operand the first element of each sample, in device memory.
class SampleTable {
  public:
    explicit SampleTable(MemoryUse* use) : table_(use) {}

    void update(const PackedRows& rows, const Shape& shape, StagingRing& staging) {
        const std::int32_t* begin = rows.host_offsets;
        const std::int32_t* end = begin + rows.samples + 1;
        if (shape.samples == samples_ && shape.ld == ld_ &&
            std::equal(begin, end, offsets_.begin(), offsets_.end())) {
            return;
        }
        samples_ = shape.samples;
        ld_ = shape.ld;
        std::vector<std::int32_t> host(section() * (1 + operand_count), 0);
        for (std::int64_t i = 0; i <= samples_; ++i) {
            const std::int32_t first = begin[std::min(i, rows.samples)];
            if (i < samples_) host[i] = begin[std::min(i + 1, rows.samples)] - first;
            for (std::int64_t operand = 0; operand < operand_count; ++operand) {
                host[section() * (1 + operand) + i] =
                    static_cast<std::int32_t>(first * ld_[operand]);
            }
        }
        const std::size_t bytes = host.size() * sizeof(std::int32_t);
        reserve(bytes);
        staging.upload(table_.data(), host.data(), bytes);
        offsets_.assign(begin, end);
    }
    void reserve(std::size_t bytes) {
        offsets_.clear();
        table_.reserve(bytes, "attention offsets");
    }
    void* lengths() const { return static_cast<std::int32_t*>(table_.data()); }
    void* offsets(std::int64_t operand) const {
        return static_cast<std::int32_t*>(table_.data()) + section() * (1 + operand);
    }

  private:
    std::int64_t section() const { return (samples_ + 1 + 15) / 16 * 16; }

    GrowingMemory table_;
    std::vector<std::int32_t> offsets_;  ///< empty: table_ is not filled
    std::array<std::int64_t, operand_count> ld_{};
    std::int64_t samples_ = 0;
};

void check_cudnn(cudnnStatus_t status, const char* what) {
    if (status != CUDNN_STATUS_SUCCESS) {
        throw Error(cat(what, ": ", cudnnGetErrorString(status)));
    }
}

class GraphBuilder {
  public:
    explicit GraphBuilder(const Shape& shape) : shape_(shape), graph_(new graph::Graph()) {
        graph_->set_io_data_type(cudnn_frontend::DataType_t::BFLOAT16)
            .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
            .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
        lengths_ = index_tensor(lengths_id, shape.samples);
    }

    Graph finish(cudnnHandle_t handle) {
        auto options = graph::SDPA_attributes().set_generate_stats(true);
        set_options(options);
        const auto [out, out_stats] = graph_->sdpa(input(q), input(k), input(v), options);
        describe(o, *out);
        describe(stats, *out_stats);
        Graph result;
        auto built = graph_->build(handle, {cudnn_frontend::HeurMode_t::A});
        if (built.is_bad()) {
            result.refusal = built.get_message();
            return result;
        }
        auto sized = graph_->get_workspace_size(result.workspace);
        if (sized.is_bad()) {
            result.refusal = sized.get_message();
        } else {
            result.graph = std::move(graph_);
        }
        return result;
    }

  private:
    void set_options(graph::SDPA_attributes& options) const {
        options.set_attn_scale(shape_.scale)
            .set_causal_mask(true)
            .set_padding_mask(true)
            .set_seq_len_q(lengths_)
            .set_seq_len_kv(lengths_)
            .set_max_total_seq_len_q(shape_.tokens)
            .set_max_total_seq_len_kv(shape_.tokens);
        if (shape_.window > 0) options.set_sliding_window_length(static_cast<int>(shape_.window));
    }

    GraphTensor index_tensor(std::int64_t id, std::int64_t count) {
        return graph_->tensor(graph::Tensor_attributes()
                                  .set_uid(id)
                                  .set_dim({count, 1, 1, 1})
                                  .set_stride({1, 1, 1, 1})
                                  .set_data_type(cudnn_frontend::DataType_t::INT32));
    }

    void set_layout(Operand operand, graph::Tensor_attributes& tensor) {
        const bool is_stats = operand == stats;
        const std::int64_t dim = is_stats ? 1 : shape_.head_dim;
        const std::int64_t ld = shape_.ld[operand];
        tensor.set_uid(operand + 1)
            .set_dim({shape_.samples, shape_.heads_of(operand), shape_.length, dim})
            .set_stride({shape_.length * ld, dim, ld, 1})
            .set_data_type(is_stats ? cudnn_frontend::DataType_t::FLOAT
                                    : cudnn_frontend::DataType_t::BFLOAT16)
            .set_ragged_offset(index_tensor(offsets_id + operand, shape_.samples + 1));
    }

    GraphTensor input(Operand operand) {
        graph::Tensor_attributes tensor;
        set_layout(operand, tensor);
        return graph_->tensor(tensor);
    }

    void describe(Operand operand, graph::Tensor_attributes& tensor) {
        set_layout(operand, tensor);
        tensor.set_output(true);
    }

    const Shape& shape_;
    std::unique_ptr<graph::Graph> graph_;
    GraphTensor lengths_;
};

/// Of a device: graphs that were built with the handle, whichever backend of this process has use
/// of them next. What cuDNN compiles for a length of samples takes far longer than another graph,
/// and the backend that costs are measured with meets training's shapes before it does.
struct DeviceGraphs {
    cudnnHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;  ///< of the handle
    std::map<Shape, Graph> graphs;

    void use(cudaStream_t other) {
        if (stream == other) return;
        check_cudnn(cudnnSetStream(handle, other), "set cuDNN stream");
        stream = other;
    }
    /// The stream ends.
    void leave(cudaStream_t other) {
        if (stream != other) return;
        cudnnSetStream(handle, nullptr);
        stream = nullptr;
    }
};

/// This thread's; left to the end of the process, where the driver may be gone before.
DeviceGraphs& graphs_of_device() {
    thread_local auto* const of_devices = new std::map<int, DeviceGraphs>();
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    DeviceGraphs& graphs = (*of_devices)[device];
    if (graphs.handle == nullptr) check_cudnn(cudnnCreate(&graphs.handle), "create cuDNN handle");
    return graphs;
}

class CudnnAttentionGraphs final : public CudnnAttention {
  public:
    CudnnAttentionGraphs(cudaStream_t stream, StagingRing& staging, MemoryUse* use)
        : stream_(stream),
          device_(graphs_of_device()),
          staging_(staging),
          workspace_(use),
          table_(use) {
        const std::size_t version = cudnnGetVersion();
        description_ = cat("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
    }
    ~CudnnAttentionGraphs() override { device_.leave(stream_); }
    CudnnAttentionGraphs(const CudnnAttentionGraphs&) = delete;
    CudnnAttentionGraphs& operator=(const CudnnAttentionGraphs&) = delete;

    void reserve(std::size_t workspace_bytes, std::size_t table_bytes) override {
        workspace_.reserve(workspace_bytes, "cuDNN's workspace");
        table_.reserve(table_bytes);
    }
    void before_stalls(const std::function<void()>& call) override { before_stall_ = call; }
    const FirstUses& first_uses() const override { return first_uses_; }
    bool forward(const Attention& op) override {
        if (op.soft_cap > 0.0F) return refuse("scores with a soft cap");
        if (!cudnn_takes(op.head_dim)) return refuse(cat("head_dim ", op.head_dim));
        const std::array<std::pair<Operand, const TensorView*>, 4> operands{
            {{q, &op.q}, {k, &op.k}, {v, &op.v}, {o, &op.o}}};
        Shape shape = shape_of(op);
        std::unordered_map<std::int64_t, void*> pointers{{stats + 1, op.lse}};
        for (const auto& [operand, view] : operands) {
            const bool aligned =
                view->ld % 8 == 0 && reinterpret_cast<std::uintptr_t>(view->data) % 16 == 0;
            if (!aligned) return refuse("rows do not start at multiples of 16 bytes");
            if (op.rows.tokens * view->ld > INT32_MAX) return refuse("more than 2^31 elements");
            shape.ld[operand] = view->ld;
            pointers[operand + 1] = view->data;
        }
        return run(op.rows, shape, pointers);
    }
    const std::string& refusal() const override { return refusal_; }
    const char* description() const override { return description_.c_str(); }

  private:
    bool refuse(std::string why) {
        refusal_ = std::move(why);
        return false;
    }

    bool run(const PackedRows& rows, const Shape& shape,
             std::unordered_map<std::int64_t, void*>& pointers) {
        device_.use(stream_);
        const Graph& found = graph_of(shape);
        if (found.graph == nullptr) return refuse(found.refusal);
        void* workspace = workspace_.try_reserve(static_cast<std::size_t>(found.workspace));
        if (workspace == nullptr && found.workspace > 0) {
            return refuse(cat("no memory for ", found.workspace, " bytes of workspace"));
        }
        table_.update(rows, shape, staging_);
        pointers[lengths_id] = table_.lengths();
        for (std::int64_t operand = 0; operand < operand_count; ++operand) {
            pointers[offsets_id + operand] = table_.offsets(operand);
        }
        auto status = found.graph->execute(device_.handle, pointers, workspace);
        if (status.is_bad()) throw Error(cat("cuDNN attention: ", status.get_message()));
        return true;
    }

    static Shape shape_of(const Attention& op) {
        Shape shape;
        std::int64_t longest = 0;
        for (std::int64_t i = 0; i < op.rows.samples; ++i) {
            longest = std::max<std::int64_t>(longest,
                                             op.rows.host_offsets[i + 1] - op.rows.host_offsets[i]);
        }
        const AttentionShape sizes = attention_shape(op.rows.samples, longest, op.rows.tokens);
        shape.samples = sizes.samples;
        shape.length = sizes.length;
        shape.tokens = sizes.tokens;
        shape.heads = op.q.cols / op.head_dim;
        shape.kv_heads = op.k.cols / op.head_dim;
        shape.head_dim = op.head_dim;
        shape.scale = op.scale;
        shape.window = op.window < longest ? op.window : 0;
        shape.ld[stats] = op.q.cols / op.head_dim;
        return shape;
    }

    const Graph& graph_of(const Shape& shape) {
        const auto found = device_.graphs.find(shape);
        if (found != device_.graphs.end()) return found->second;
        if (before_stall_) before_stall_();
        const auto start = std::chrono::steady_clock::now();
        Graph& result = device_.graphs[shape];
        result = GraphBuilder(shape).finish(device_.handle);
        ++first_uses_.graphs;
        first_uses_.graph_seconds += seconds_since(start);
        return result;
    }

    cudaStream_t stream_;
    DeviceGraphs& device_;
    StagingRing& staging_;
    std::string description_;
    std::string refusal_;
    FirstUses first_uses_;
    std::function<void()> before_stall_;
    GrowingMemory workspace_;
    SampleTable table_;
};

}  // namespace

bool cudnn_attention_built() {
    return true;
}

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream, StagingRing& staging,
                                                     MemoryUse* use) {
    return std::make_unique<CudnnAttentionGraphs>(stream, staging, use);
}

}  // namespace loratrain

#else

namespace loratrain {

bool cudnn_attention_built() {
    return false;
}

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t, StagingRing&, MemoryUse*) {
    return nullptr;
}

}  // namespace loratrain

#endif
