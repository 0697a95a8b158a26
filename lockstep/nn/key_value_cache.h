// A cache of the keys and values of attention, for decoding: a new token attends to the tokens before it without
// computing their keys and values again.
//
//   KeyValueCache cache(layers, longest);
//   for (each new token) {
//     for (each layer i) y = cache.attend(i, query, key, value);  // [N, H, 1, E]
//     cache.advance(1);
//   }
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class KeyValueCache {
 public:
  // Room for `capacity` tokens in each of `layers` layers. Throws unless there is at least one of each.
  KeyValueCache(std::int64_t layers, std::int64_t capacity);

  std::int64_t capacity() const { return capacity_; }
  // The number of tokens before the next ones.
  std::int64_t length() const { return length_; }

  // Writes the keys [N, H, L, E] and values [N, H, L, V] of the next L tokens into the layer's memory, and returns
  // their causal attention to all tokens so far, [N, H, L, V]: the rows that scaled_dot_product_attention() of all
  // tokens has for them, with the same bits where it takes one pass (f32 on CPUs). Keeps no history. Throws for a layer
  // that does not exist, without room for L tokens, for a batch that is cut over shards, for shapes that do not fit one
  // another or the first call's, and, outside a NoGradGuard, for keys or values that need a gradient.
  Tensor attend(std::int64_t layer, const Tensor& query, const Tensor& key, const Tensor& value);
  // Ends the pass of `tokens` tokens through all layers. After a pass that threw, do not call it: the next pass then
  // takes the same place. Throws if there is no room for them.
  void advance(std::int64_t tokens);

 private:
  struct Layer {
    Tensor keys, values;  // [N, H, capacity, E], [N, H, capacity, V]
  };
  std::vector<Layer> layers_;
  std::int64_t capacity_, length_ = 0;
};

}  // namespace lockstep
