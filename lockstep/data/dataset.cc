#include "lockstep/data/dataset.h"

#include "lockstep/autograd/tensor_impl.h"

#include <cstring>
#include <utility>

namespace lockstep {
namespace {

Shape with_rows(std::int64_t rows, const Shape& row) {
  check(row.dim() < Shape::kMaxDim, "dataset: an example has {} axes, at most {} can be stacked", row.dim(),
        Shape::kMaxDim - 1);
  std::vector<std::int64_t> dims{rows};
  dims.insert(dims.end(), row.begin(), row.end());
  return Shape(std::span<const std::int64_t>(dims));
}

std::byte* bytes(const Tensor& t) { return static_cast<std::byte*>(t->view().data); }

// Host tensors of one shape and type, stacked along a new axis 0.
Tensor stack_examples(std::span<const Tensor> tensors) {
  check(!tensors.empty(), "stack: no tensors");
  const Tensor& first = tensors[0];
  Tensor all = Tensor::host(with_rows(static_cast<std::int64_t>(tensors.size()), first.shape()), first.dtype());
  std::size_t row = first->view().bytes();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check(t.defined() && t.device().is_host(), "stack: tensor {} is {}, expected host memory", i, t);
    check(t.shape() == first.shape() && t.dtype() == first.dtype(),
          "stack: tensor {} is {}, the first is {}, expected the same shape and type", i, t, first);
    if (row > 0) std::memcpy(bytes(all) + i * row, bytes(t), row);
  }
  return all;
}

}  // namespace

Example Dataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const {
  check(!indices.empty(), "dataset: an empty batch");
  std::vector<std::vector<Tensor>> parts;  // [part][example]
  for (std::size_t i = 0; i < indices.size(); ++i) {
    Example example = get(indices[i], keys[i]);
    if (i == 0) parts.resize(example.size());
    check(example.size() == parts.size(), "dataset: example {} has {} parts, others have {}", indices[i],
          example.size(), parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].push_back(std::move(example[k]));
  }
  Example batch;
  for (const auto& part : parts) batch.push_back(stack_examples(part));
  return batch;
}

}  // namespace lockstep
