#include "lockstep/data/collate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/data/history.h"

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

}  // namespace

Tensor stack_parts(std::span<const Tensor> tensors) {
  check(!tensors.empty(), "stack: no tensors");
  const Tensor& first = tensors[0];
  check(first.defined(), "stack: tensor 0 is undefined, expected host memory");
  Tensor all = Tensor::host(with_rows(static_cast<std::int64_t>(tensors.size()), first.shape()), first.dtype());
  std::size_t row = first->view().bytes();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check(t.defined() && t.device().is_host(), "stack: tensor {} is {}, expected host memory", i, t);
    check(t.shape() == first.shape() && t.dtype() == first.dtype(),
          "stack: tensor {} is {}, the first is {}, expected the same shape and type", i, t, first);
    check_no_history(t, "stack: tensor {}", i);
    t.wait();
    if (row > 0) std::memcpy(bytes(all) + i * row, bytes(t.to(Layout::plain)), row);
  }
  return all;
}

std::vector<Tensor> part_of_each(const std::vector<Example>& examples, std::size_t part) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    check(part < examples[i].size(), "collate: part {} of example {}, which has {} parts", part, i, examples[i].size());
    parts.push_back(examples[i][part]);
  }
  return parts;
}

Example default_collate(const std::vector<Example>& examples) {
  check(!examples.empty(), "collate: no examples");
  Example batch;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    check(examples[i].size() == examples[0].size(), "collate: example {} has {} parts, the first has {}", i,
          examples[i].size(), examples[0].size());
    for (std::size_t k = 0; k < examples[i].size(); ++k) {
      check_no_history(examples[i][k], "collate: part {} of example {} of a batch", k, i);
    }
  }
  for (std::size_t k = 0; k < examples[0].size(); ++k) batch.push_back(stack_parts(part_of_each(examples, k)));
  return batch;
}

Tensor pad_sequence(std::span<const Tensor> sequences, const PadSequenceOptions& options) {
  check(!sequences.empty(), "pad_sequence: no sequences");
  const Tensor& first = sequences[0];
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Tensor& t = sequences[i];
    check(t.defined() && t.device().is_host() && t.layout() == Layout::plain && t.shape().dim() >= 1,
          "pad_sequence: sequence {} is {}, expected host memory with at least one axis", i, t);
    Shape shape = t.shape();
    shape[0] = first.size(0);
    check(shape == first.shape() && t.dtype() == first.dtype(),
          "pad_sequence: sequence {} is {}, the first is {}, expected the same but for axis 0", i, t, first);
    check_no_history(t, "pad_sequence: sequence {}", i);
    longest = std::max(longest, t.size(0));
  }
  check(options.length == 0 || longest <= options.length, "pad_sequence: a sequence of {}, expected at most {}",
        longest, options.length);
  if (options.length > 0) longest = options.length;
  Shape padded = first.shape();
  padded[0] = longest;
  // Throws if the type does not hold the value.
  const Tensor all = full(with_rows(std::ssize(sequences), padded), options.value, {.dtype = first.dtype()});
  const std::size_t row = all->view().bytes() / sequences.size();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (const std::size_t size = sequences[i]->view().bytes(); size > 0) {
      sequences[i].wait();
      std::memcpy(bytes(all) + i * row, bytes(sequences[i]), size);
    }
  }
  return all;
}

}  // namespace lockstep
