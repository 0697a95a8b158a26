// Internal: random arrays and dropout.
#pragma once

#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Overwrite y, element i in plain order with draw i under `key`.
void uniform_(const Array& y, RandomKey key, double low, double high);
void normal_(const Array& y, RandomKey key, double mean, double stddev);

// The next key of `device`'s random state for the current shard; kHost: of current_random(). A step that calls it is
// not recorded.
RandomKey next_key(Device device, std::string_view what);

// The values that decide a mask.
struct DropoutKey {
  RandomKey key;
  // If defined, i64 [2] on x's device: the words of the key, which are read instead of `key`.
  Array in_memory = {};
};
// The next key for the current shard on `device`. In a recorded step, it is in memory and changes with each repetition.
DropoutKey next_dropout_key(Device device);

// x * mask / (1 - p), each element dropped with probability p; with the same key, it is its own backward function.
Array dropout(const Array& x, double p, const DropoutKey& key);

}  // namespace lockstep::ops
