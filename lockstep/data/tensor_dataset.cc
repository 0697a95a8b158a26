#include "lockstep/data/tensor_dataset.h"

#include "lockstep/autograd/host_bytes.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/data/history.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

void check_row(std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "tensor dataset: example {} is out of range [0, {})", index, size);
}

}  // namespace

TensorDataset::TensorDataset(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  check(!tensors_.empty(), "tensor dataset: no tensors");
  for (const Tensor& t : tensors_) {
    check(t.defined() && t.device().is_host() && t.shape().dim() >= 1 && t.layout() == Layout::plain,
          "tensor dataset: found {}, expected a plain tensor in host memory with at least one axis", t);
    check(t.size(0) == tensors_[0].size(0), "tensor dataset: a tensor with {} rows, the first one has {}", t.size(0),
          tensors_[0].size(0));
  }
}

Example TensorDataset::get(std::int64_t index) const {
  check_row(index, size());
  Example example;
  for (const Tensor& t : tensors_)
    example.push_back(t.narrow(0, index, 1).reshape(Shape(t.shape().sizes().subspan(1))));
  return example;
}

Example TensorDataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  Example batch;
  for (const Tensor& t : tensors_) {
    check_no_history(t, "tensor dataset: part {} of example {}", batch.size(), indices.empty() ? 0 : indices[0]);
    Shape shape = t.shape();
    shape[0] = static_cast<std::int64_t>(indices.size());
    Tensor all = Tensor::host(shape, t.dtype());
    auto* row_of_all = static_cast<std::byte*>(all->view().data);
    const std::byte* rows = host_bytes("tensor dataset", t).data();
    std::size_t row = t->view().bytes() / static_cast<std::size_t>(std::max<std::int64_t>(size(), 1));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      check_row(indices[i], size());
      std::memcpy(row_of_all + i * row, rows + static_cast<std::size_t>(indices[i]) * row, row);
    }
    batch.push_back(std::move(all));
  }
  return batch;
}

}  // namespace lockstep
