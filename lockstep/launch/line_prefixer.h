// Internal: prefixes every line of a stream that arrives in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class LinePrefixer {
 public:
  // `write` gets complete lines: the prefix, the line, and its end.
  LinePrefixer(std::string prefix, std::function<void(std::string_view)> write);

  void feed(std::string_view bytes);
  // Ends the stream. A remaining partial line counts as a line.
  void finish();

 private:
  // Longer lines are split, which bounds the memory.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 16;

  std::string prefix_;
  std::function<void(std::string_view)> write_;
  std::string line_;  // starts with the prefix
};

}  // namespace lockstep
