#include "lockstep/data/dataset.h"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

void check_index(std::string_view what, std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "{}: example {} of {}", what, index, size);
}

Shape with_rows(std::int64_t rows, const Shape& row) {
  check(row.rank() < Shape::kMaxRank, "dataset: an example has {} axes, at most {} can be stacked", row.rank(),
        Shape::kMaxRank - 1);
  std::vector<std::int64_t> dims{rows};
  dims.insert(dims.end(), row.begin(), row.end());
  return Shape(std::span<const std::int64_t>(dims));
}

Shape without_rows(const Shape& shape) { return Shape(shape.dims().subspan(1)); }

std::byte* bytes(const Tensor& t) { return static_cast<std::byte*>(t.view().data); }

// Host tensors of one shape and type, stacked along a new axis 0.
Tensor stack_examples(std::span<const Tensor> tensors) {
  check(!tensors.empty(), "stack: no tensors");
  const Tensor& first = tensors[0];
  Tensor all = Tensor::host(with_rows(static_cast<std::int64_t>(tensors.size()), first.shape()), first.dtype());
  std::size_t row = first.view().bytes();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check(t.defined() && t.device().is_host(), "stack: tensor {} is {}, expected host memory", i, t);
    check(t.shape() == first.shape() && t.dtype() == first.dtype(),
          "stack: tensor {} is {}, the first {}: expected one shape and type", i, t, first);
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

TensorDataset::TensorDataset(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  check(!tensors_.empty(), "tensor dataset: no tensors");
  for (const Tensor& t : tensors_) {
    check(t.defined() && t.device().is_host() && t.shape().rank() >= 1 && t.layout() == Layout::plain,
          "tensor dataset: {}, expected host memory and at least one axis", t);
    check(t.size(0) == tensors_[0].size(0), "tensor dataset: a tensor with {} rows, the first one has {}", t.size(0),
          tensors_[0].size(0));
  }
}

Example TensorDataset::get(std::int64_t index) const {
  check_index("tensor dataset", index, size());
  Example example;
  for (const Tensor& t : tensors_) example.push_back(t.narrow(index, 1).reshape(without_rows(t.shape())));
  return example;
}

Example TensorDataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  Example batch;
  for (const Tensor& t : tensors_) {
    Tensor all = Tensor::host(with_rows(static_cast<std::int64_t>(indices.size()), without_rows(t.shape())), t.dtype());
    std::size_t row = t.view().bytes() / static_cast<std::size_t>(std::max<std::int64_t>(size(), 1));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      check_index("tensor dataset", indices[i], size());
      std::memcpy(bytes(all) + i * row, bytes(t) + static_cast<std::size_t>(indices[i]) * row, row);
    }
    batch.push_back(std::move(all));
  }
  return batch;
}

RandomDataset::RandomDataset(RandomDatasetOptions options) : options_(options) {
  check(options.examples >= 0 && options.length >= 1, "random dataset: {} examples of length {}", options.examples,
        options.length);
}

Example RandomDataset::get(std::int64_t index) const {
  check_index("random dataset", index, size());
  RandomKey key = random_key(options_.seed, {static_cast<std::uint64_t>(index)});
  Tensor x = Tensor::host({options_.length});
  for (std::int64_t i = 0; i < options_.length; ++i) {
    x.view().as<float>()[i] = static_cast<float>(random_normal(key, static_cast<std::uint64_t>(i)));
  }
  return {x};
}

MapDataset::MapDataset(std::shared_ptr<const Dataset> inner, Transform transform)
    : inner_(std::move(inner)), transform_(std::move(transform)) {
  check(inner_ != nullptr && transform_ != nullptr, "map dataset: no data or no transform");
}

Example MapDataset::get(std::int64_t index) const {
  return get(index, random_key(0, {static_cast<std::uint64_t>(index)}));
}
Example MapDataset::get(std::int64_t index, RandomKey key) const { return transform_(inner_->get(index, key), key); }

HeadDataset::HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count)
    : inner_(std::move(inner)), count_(std::min(count, inner_->size())) {
  check(count >= 0, "head dataset: {} examples", count);
}

}  // namespace lockstep
