// Internal: weights in the order that kernels read them, made once for each update and shared by the shards of a
// device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"
#include "lockstep/tensor/array.h"
#include "lockstep/tensor/storage.h"

namespace lockstep::ops {

// The prepared weights of one storage. The storage's mutex protects it.
struct PreparedWeights : Storage::Extension {
  // Identifies the kind of result and the part of the memory.
  using Key = std::array<std::int64_t, 9>;
  struct Result {
    Key key;
    std::uint64_t version;             // of the weights when they were prepared
    std::uint64_t asked;               // the weights' version at the last request
    std::shared_ptr<Storage> storage;  // null until computed
  };
  std::vector<Result> results;

  static PreparedWeights& of(Storage& storage);
};

// Both functions push a task if w has changed since the last call. They return an undefined array if there is nothing
// to prepare, if w belongs to a shard or is in host memory, while a step is recorded, or if too many slices of w exist.

// The result of kernels::PrepareConv for w in convolutions of inputs [N, C, H, W] of `dtype`.
Array prepared_weights(const Array& w, ConvPass pass, const Conv2dOptions& options, const Shape& x, DType dtype);
// The result of kernels::PrepareMatmul for w as the right side of products of `rows` rows of `dtype`. The first
// product after an update packs w itself, panel by panel, which is faster if it stays the only one.
Array prepared_weights(const Array& w, const MatmulOptions& options, std::int64_t rows, DType dtype);

}  // namespace lockstep::ops
