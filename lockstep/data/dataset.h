// A data set: numbered examples in host memory. Derive from Dataset for data of your own.
//
//   struct Squares : Dataset {
//     std::int64_t size() const override { return 100; }
//     Example get(std::int64_t i) const override { return {full({1}, double(i)), full({1}, double(i * i))}; }
//   };
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

// Parts of one example, such as {image, label}, as host tensors; the parts of a batch have one more axis in front.
using Example = std::vector<Tensor>;

// Base class for your own data: implement size() and get(). Both must be safe to call from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // Expects 0 <= index < size(). Each part must have the same shape and type in all examples, unless the loader has a
  // DataLoaderOptions::collate. Parts must not require gradients, which a batch would lose: detach() them.
  virtual Example get(std::int64_t index) const = 0;
  // Override it for data with random transforms. `key` depends on (seed, epoch, index): an example is the same in every
  // process and differs between epochs.
  virtual Example get(std::int64_t index, RandomKey key) const {
    (void)key;
    return get(index);
  }
  // Returns the example as a receipt hashes it: without the transforms that the recipe names (see TransformedDataset).
  // A data set that wraps another one passes the call on.
  virtual Example raw(std::int64_t index) const { return get(index); }
  // Returns examples stacked along axis 0. `keys` is as long as `indices`. The default stacks the results of get().
  virtual Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const;
};

}  // namespace lockstep
