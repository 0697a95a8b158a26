// Marks every line of a stream, however it comes in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class LinePrefixer {
 public:
  // `write` gets whole lines: the prefix, the line, its end.
  LinePrefixer(std::string prefix, std::function<void(std::string_view)> write);

  void feed(std::string_view bytes);
  // The stream is over: what is left of it is a line, too.
  void finish();

 private:
  // A line that is longer is cut into several, so that memory is bounded.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 16;

  std::string prefix_;
  std::function<void(std::string_view)> write_;
  std::string line_;  // begins with the prefix
};

}  // namespace lockstep
