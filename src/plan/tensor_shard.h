#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/layer_tensors.h"
#include "config/model_spec.h"

namespace loratrain {

/// Tensor parallelism: a lane computes with its share of the heads and of the columns of MLPs and
/// of each expert, as a stage of a thinner model does. Every lane has the whole router. With
/// ExpertCut::whole lane l of P has the experts from l ceil(E / P) on, as many or what is left, and
/// computes the tokens' places in these alone; a layer's output is a sum over experts, so that what
/// lanes add to the residual stream adds up as before.

/// Rows or columns [first, first + count).
struct Slice {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t end() const { return first + count; }
    friend bool operator==(const Slice&, const Slice&) = default;
};

/// A few ranges, ascending and apart: what a lane has of rows that several parts lie in, as those
/// of q, k and v of one linear. It has them one behind another. Value type.
class Slices {
  public:
    Slices() = default;
    Slices(const Slice& one) { add(one); }  // NOLINT(google-explicit-constructor)

    /// A range behind the others; one that begins where the last ends makes that longer, so that
    /// equal rows are equal ranges.
    void add(const Slice& next) {
        if (next.count == 0) return;
        if (number_ > 0 && ranges_[number_ - 1].end() == next.first) {
            ranges_[number_ - 1].count += next.count;
            return;
        }
        LORATRAIN_CHECK(
            number_ < ranges_.size() && (number_ == 0 || ranges_[number_ - 1].end() < next.first),
            "ranges of a slice");
        ranges_[number_++] = next;
    }

    std::span<const Slice> ranges() const { return {ranges_.data(), number_}; }
    std::int64_t count() const {
        std::int64_t sum = 0;
        for (const Slice& range : ranges()) sum += range.count;
        return sum;
    }
    /// The range, where there is never more than one.
    Slice only() const {
        LORATRAIN_CHECK(number_ <= 1, number_, " ranges instead of one");
        return number_ == 0 ? Slice{} : ranges_[0];
    }
    /// Calls use(first, place, count) for pieces of at most `at_once`: [first, first + count) is
    /// what the lane has from its own `place` on.
    template <class Use>
    void for_each_piece(std::int64_t at_once, const Use& use) const {
        std::int64_t place = 0;
        for (const Slice& range : ranges()) {
            for (std::int64_t at = 0; at < range.count; at += at_once) {
                const std::int64_t count = std::min(at_once, range.count - at);
                use(range.first + at, place, count);
                place += count;
            }
        }
    }

    friend bool operator==(const Slices&, const Slices&) = default;

  private:
    std::array<Slice, 3> ranges_{};
    std::size_t number_ = 0;
};

/// True if `tensor` lanes can share the model. One lane always can. Conditions:
/// - tensor divides heads; it divides kv_heads or, where q, k and v are linears of their own, is a
///   multiple of them (then a key-value head lies on several lanes);
/// - tensor divides the key heads of gated delta nets, and 8 a lane's key and value columns;
/// - 8 * tensor divides the MLP's size, tensor that of experts; with ExpertCut::whole there are at
///   least as many experts; 8 divides q_size / tensor;
/// - the vocabulary has 16 rows for each lane;
/// - a lane's columns of quantised linears share no scale with other lanes.
bool can_shard(const ModelSpec& model, std::int32_t tensor);
/// Why `tensor` lanes cannot share the model, as words that follow the number: "does not divide 12
/// heads"; "" = they can.
std::string shard_obstacle(const ModelSpec& model, std::int32_t tensor);
/// All numbers of lanes that can share the model, ascending.
std::vector<std::int32_t> tensor_degrees(const ModelSpec& model);

/// Sizes on one of `tensor` lanes: heads, kv_heads (at least 1), heads of delta nets and MLP sizes
/// divided by `tensor`, or ExpertSpec::lanes set; vocab_size of the lane with most rows. Error
/// unless can_shard().
ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor);

/// One of a stage's lanes.
struct TensorLane {
    std::int32_t index = 0;
    std::int32_t count = 1;
};

/// A lane's part of a linear's W [out, in]. q, k, v, gate, up: rows, so that the whole input makes
/// the lane's part of the output; several ranges where one linear makes several parts, as q, k
/// and v. o, down: columns, so that the lanes' outputs add up to the linear's.
struct LinearSlice {
    Slices out;
    Slice in;
};
LinearSlice lane_slice(const ModelSpec& model, Linear linear, const TensorLane& lane);
/// A lane's part of a layer's linear `of`, which may be in experts: an expert is cut as an MLP is,
/// or whole.
LinearSlice lane_slice(const ModelSpec& model, Linear linear, const LayerLinear& of,
                       const TensorLane& lane);
/// The same in one expert: nothing of an expert that the lane does not have.
LinearSlice lane_slice(const ModelSpec& model, Linear linear, const LayerLinear& of,
                       std::int32_t expert, const TensorLane& lane);
/// ExpertCut::whole.
bool has_whole_experts(const ModelSpec& model);
/// The experts of which a lane has all or a part. `experts`: the model's or the lane's.
Slice lane_experts(const ExpertSpec& experts, const TensorLane& lane);
/// A lane's part of another tensor of a layer. `whole` and `own`: the tensor's shape in the model
/// and on the lane.
struct TensorSlice {
    Slices rows;
    Slices columns;
};
TensorSlice lane_slice(const LayerTensorShape& whole, const LayerTensorShape& own,
                       const TensorLane& lane);
/// True for o and down.
inline bool is_cut_by_columns(Linear linear) {
    return lane_cut(linear) == LaneCut::columns;
}

/// A lane's rows of the vocabulary (embedding, head): whole blocks of 16, except the last one;
/// lanes have equal numbers of blocks or one less.
Slice lane_vocabulary(const ModelSpec& model, const TensorLane& lane);

/// Number of neighbouring lanes with the same key-value heads; such lanes begin at a multiple of
/// it.
std::int32_t lanes_per_key_value_head(const ModelSpec& model, std::int32_t tensor);

}  // namespace loratrain
