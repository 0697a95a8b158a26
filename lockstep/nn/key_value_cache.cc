#include "lockstep/nn/key_value_cache.h"

#include <iterator>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"

namespace lockstep {
namespace {

std::size_t checked(std::int64_t layers, std::int64_t capacity) {
  check(layers > 0 && capacity > 0, "key-value cache: {} layers of {} tokens, expected at least 1 of each", layers,
        capacity);
  return static_cast<std::size_t>(layers);
}

// Memory for x [N, H, L, E] of all tokens.
Tensor room_for(const Tensor& x, std::int64_t capacity) {
  return zeros({x.size(0), x.size(1), capacity, x.size(3)}, like(x));
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t layers, std::int64_t capacity)
    : layers_(checked(layers, capacity)), capacity_(capacity) {}

Tensor KeyValueCache::attend(std::int64_t layer, const Tensor& query, const Tensor& key, const Tensor& value) {
  check(layer >= 0 && layer < std::ssize(layers_), "key-value cache: layer {}, expected 0 to {}", layer,
        std::ssize(layers_) - 1);
  for (const Tensor* x : {&query, &key, &value}) {
    check(x->defined() && x->dim() == 4 && (*x)->kind == Kind::whole,
          "key-value cache: an operand is {}, expected 4 axes (N, H, L, E), on one device", x->describe());
  }
  const auto tokens = key.size(2);
  check(query.shape() == key.shape() && value.size(0) == key.size(0) && value.size(1) == key.size(1) &&
            value.size(2) == tokens,
        "key-value cache: query {}, key {}, value {}, expected [N, H, L, E], the same, and [N, H, L, V]", query, key,
        value);
  check(tokens <= capacity_ - length_, "key-value cache: {} more tokens after {}, expected at most {} in all", tokens,
        length_, capacity_);
  Layer& at = layers_[static_cast<std::size_t>(layer)];
  if (!at.keys.defined()) at = {room_for(key, capacity_), room_for(value, capacity_)};
  for (const auto& [all, next] : {std::pair{&at.keys, &key}, std::pair{&at.values, &value}}) {
    check(all->size(0) == next->size(0) && all->size(1) == next->size(1) && all->size(3) == next->size(3),
          "key-value cache: {} after {}, expected the same axes but the tokens", *next, *all);
    all->index_put_({Slice(), Slice(), Slice(length_, length_ + tokens)}, *next);
  }
  return scaled_dot_product_attention(query, at.keys, at.values, {.is_causal = true, .position = length_});
}

void KeyValueCache::advance(std::int64_t tokens) {
  check(tokens >= 0 && tokens <= capacity_ - length_, "key-value cache: {} more tokens after {}, expected 0 to {}",
        tokens, length_, capacity_ - length_);
  length_ += tokens;
}

}  // namespace lockstep
