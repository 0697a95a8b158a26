// Internal: writes output on a thread of its own, so that the owner never waits for a terminal or a pager that reads
// nothing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep {

class OutputWriter {
 public:
  using Write = std::function<void(bool is_error, std::string_view line)>;

  explicit OutputWriter(Write write);
  // Writes the remaining lines.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  // Never waits. Lines are written in the order of the calls.
  void push(bool is_error, std::string_view line);
  // The text of the first exception that a write threw. The output is gone then: later lines of the same stream are
  // dropped.
  std::optional<std::string> gone() const;
  // Whether so many bytes are waiting that producers should pause.
  bool full() const;

 private:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  void write_all();

  const Write write_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<bool, std::string>> lines_;
  std::size_t bytes_ = 0;  // bytes of `lines_` and of the line that is being written
  bool closing_ = false;
  bool is_gone_[2] = {};  // standard output, error output
  std::optional<std::string> gone_;
  std::thread thread_;
};

}  // namespace lockstep
