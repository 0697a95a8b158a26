// Shows how far an epoch is: one line that moves on a terminal; elsewhere, in a log say, a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

struct Progress {
  std::string label;       // "epoch 3/10", ASCII
  std::int64_t done = 0;   // images
  std::int64_t total = 0;  // images
  double seconds = 0;      // since the start
  std::int64_t before = 0;  // images done before the start
};

// "epoch 3/10 [=====>     ] 25600/60000  1234 images/s  0:28 left" in at most `width` characters; a narrow
// terminal gets fewer of the numbers.
std::string progress_line(const Progress& progress, int width);

// "epoch 3/10: 25600/60000  1234 images/s  0:28 left", for a stream that is no terminal.
std::string progress_text(const Progress& progress);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // Does not own the stream, which nobody else may write to until the bar is cleared.
  ProgressBar(std::FILE* stream, std::string label, std::int64_t total);
  // Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Call it as often as you like: it draws ten times a second at most, and writes a line every ten seconds where there is no
  // terminal. The clock runs from the first call.
  void update(std::int64_t done, Clock::time_point now = Clock::now());
  // Leaves an empty line with the cursor at its start, ready for other output. update() draws the bar again.
  void clear();

 private:
  std::FILE* stream_;
  bool terminal_;
  Progress progress_;
  Clock::time_point start_{};
  Clock::time_point next_draw_{};
  bool drawn_ = false;
};

}  // namespace lockstep
