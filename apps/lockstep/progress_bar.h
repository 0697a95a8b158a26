// Shows the progress of an epoch: one line that changes on a terminal, or a line every ten seconds elsewhere, as in a
// log.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep::app {

struct Progress {
  std::string label;        // "epoch 3/10", ASCII
  std::int64_t done = 0;    // images
  std::int64_t total = 0;   // images
  double seconds = 0;       // since the start
  std::int64_t before = 0;  // images done before the start
  std::int64_t later = 0;   // images of the epochs after this one
};

// Returns "epoch 3/10 [=====>     ] 25600/60000  1234 images/s  0:28 left, 6:18 in all" in at most `width` characters;
// a narrow terminal shows fewer numbers. The time for all epochs assumes the speed of this one.
std::string progress_line(const Progress& progress, int width);

// Returns "epoch 3/10: 25600/60000  1234 images/s  0:28 left, 6:18 in all", for a stream that is not a terminal.
std::string progress_text(const Progress& progress);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // Does not own the stream. Call clear() before any other output to it.
  ProgressBar(std::FILE* stream, std::string label, std::int64_t total, std::int64_t later = 0);
  // Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // May be called often: it draws at most ten times a second on a terminal, and writes a line every ten seconds on
  // other streams. The clock runs from the first call.
  void update(std::int64_t done, Clock::time_point now = Clock::now());
  // Leaves an empty line with the cursor at its start, ready for other output. update() draws the bar again.
  void clear();

 private:
  // Ignores errors, so that the training goes on.
  void write(const std::string& text);

  std::FILE* stream_;
  bool terminal_;
  Progress progress_;
  Clock::time_point start_{};
  Clock::time_point next_draw_{};
  bool drawn_ = false;
};

}  // namespace lockstep::app
