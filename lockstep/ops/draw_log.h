// Internal: the keys of the random numbers that a thread draws, to draw the same numbers again.
//
//   ops::DrawLog first;
//   Tensor y = dropout(x, 0.5);
//   const ops::DrawLog again(first.keys());
//   Tensor z = dropout(x, 0.5);  // drops the same elements, and the random state does not advance
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/ops/random.h"

namespace lockstep::ops {

// While it lives, it keeps the keys that this thread draws, or gives it the keys of an earlier log.
class DrawLog {
 public:
  DrawLog();
  // `keys` must outlive it. Logs that were made before see nothing of these draws.
  explicit DrawLog(std::span<const DropoutKey> keys);
  ~DrawLog();
  DrawLog(const DrawLog&) = delete;
  DrawLog& operator=(const DrawLog&) = delete;

  const std::vector<DropoutKey>& keys() const { return keys_; }
  // Of a log that gives keys: how many were not drawn.
  std::size_t left() const { return given_.size() - taken_; }

  // Returns the key that a log gives, or draw(), which logs then keep. Throws if all keys of the log were drawn; `what`
  // names the operation. All functions that take a key from a random state call it.
  static DropoutKey next(std::string_view what, const std::function<DropoutKey()>& draw);

 private:
  DrawLog* const outer_;
  const bool gives_ = false;
  std::span<const DropoutKey> given_;
  std::size_t taken_ = 0;
  std::vector<DropoutKey> keys_;
};

}  // namespace lockstep::ops
