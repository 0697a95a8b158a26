// Indexing. Indices are i64; an index outside the axis fails the task. The batch must be on another axis. Gradients of
// elements chosen several times are added in the order of the indices.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// y[.., i, ..] = x[.., index[.., i, ..], ..]. Along the other axes, shapes broadcast; gather(), as in PyTorch, instead
// cuts x to the shape of the index there.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);
// y[i] = x[index[i]] along the axis; index has shape [n]. Either x or the index may be cut over the batch, not both.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// weight[input]: input any shape, weight [rows, features] -> [input's shape, features]. Row padding_idx of the weight
// gets no gradient.
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx = {});
// Returns x with src[.., i, ..] added at [.., index[.., i, ..], ..] for every position of the index. Nothing
// broadcasts. The index may be shorter than src along any axis, and shorter than x along any axis but `dim`: elements
// past its end are ignored in src and unchanged in x. Whole numbers (i64) are added exactly.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
// Returns x with src[.., i, ..], or `value`, at [.., index[.., i, ..], ..] for every position of the index, whose shape
// is as for scatter_add(). If several positions write one element, the last one wins, and it alone gets a gradient.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Scalar& value);
// y[.., i, ..] = x[.., index[.., i, ..], ..], in the index's shape: it may be shorter than x along any axis, and longer
// along `dim`. (gather(x, device) of shards.h brings the samples of a batch together.)
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// Returns x with alpha src[.., i, ..] added at [.., index[i], ..]: index [n].
Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src, const Scalar& alpha = 1);
// The sum, the mean, or the largest elements of the weight rows of each bag of indices. Bags of equal length are rows
// of the input, [bags, indices] -> [bags, features]. Bags of different lengths lie one after the other in an input
// [indices], and `offsets`, i64 [bags], has the start of each bag, the first of which is 0; this waits for the offsets.
// A batch that is cut over shards needs rows. Indices equal to padding_idx do not count; a bag without other indices
// gives 0. per_sample_weights have the input's shape and need mode sum.
//
//   embedding_bag(tensor<std::int64_t>({4, 1, 1, 0, 2}), weight, {.offsets = tensor<std::int64_t>({0, 2})});
enum class BagMode : std::uint8_t { sum, mean, max };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  std::optional<std::int64_t> padding_idx = {};
  Tensor per_sample_weights = {};
  Tensor offsets = {};
  // The last offset is the end of the last bag, which is the length of the input.
  bool include_last_offset = false;
};
Tensor embedding_bag(const Tensor& input, const Tensor& weight, const EmbeddingBagOptions& options = {});
// 1 at each class index, 0 elsewhere: i64 [input's shape, num_classes].
Tensor one_hot(const Tensor& input, std::int64_t num_classes);

}  // namespace lockstep
