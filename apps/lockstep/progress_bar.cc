#include "apps/lockstep/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace lockstep::app {
namespace {

constexpr auto kDrawInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(10);
constexpr int kLeastBar = 10, kMostBar = 40;  // characters between the brackets
constexpr std::string_view kClearLine = "\r\x1b[K";

int terminal_width(std::FILE* stream) {
  winsize size{};
  return ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(std::ceil(seconds), 359999.0));  // limits it to 99:59:59
  const auto hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string bar(double fraction, int width) {
  const int filled = static_cast<int>(fraction * width);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < width) bar += '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return "[" + bar + "]";
}

struct Numbers {
  std::string counts, rate, left, all;
};

Numbers numbers_of(const Progress& progress) {
  Numbers n{fmt::format(" {}/{}", progress.done, progress.total), "", "", ""};
  if (progress.done > progress.before && progress.seconds > 0) {
    const double per_second = static_cast<double>(progress.done - progress.before) / progress.seconds;
    n.rate = fmt::format("  {:.{}f} images/s", per_second, per_second < 100 ? 1 : 0);
    const double images = std::max(0.0, static_cast<double>(progress.total - progress.done));
    n.left = fmt::format("  {} left", clock_time(images / per_second));
    const double all = images + static_cast<double>(progress.later);
    if (progress.later > 0) n.all = fmt::format(", {} in all", clock_time(all / per_second));
  }
  return n;
}

}  // namespace

std::string progress_text(const Progress& progress) {
  const auto [counts, rate, left, all] = numbers_of(progress);
  return progress.label + ":" + counts + rate + left + all;
}

std::string progress_line(const Progress& progress, int width) {
  const double fraction =
      progress.total > 0
          ? std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0)
          : 0.0;
  const auto [counts, rate, left, all] = numbers_of(progress);
  // Takes the first choice that leaves room for a bar.
  for (const std::string& numbers : {counts + rate + left + all, counts + left + all, left + all, left}) {
    const int room = width - static_cast<int>(progress.label.size() + numbers.size() + 3);
    if (room >= kLeastBar) return progress.label + " " + bar(fraction, std::min(room, kMostBar)) + numbers;
  }
  std::string line = fmt::format("{} {:.0f} %", progress.label, std::floor(100 * fraction));
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(width, 0))));
  return line;
}

ProgressBar::ProgressBar(std::FILE* stream, std::string label, std::int64_t total, std::int64_t later)
    : stream_(stream),
      terminal_(::isatty(::fileno(stream)) == 1), progress_{.label = std::move(label), .total = total, .later = later} {
}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(std::int64_t done, Clock::time_point now) {
  if (now < next_draw_) return;
  if (start_ == Clock::time_point()) {
    start_ = now;
    progress_.before = done;
    if (!terminal_) {  // a first line would not know the speed yet
      next_draw_ = now + kLineInterval;
      return;
    }
  }
  progress_.done = done;
  progress_.seconds = std::chrono::duration<double>(now - start_).count();
  if (!terminal_) {
    next_draw_ = now + kLineInterval;
    write(progress_text(progress_) + "\n");
    return;
  }
  next_draw_ = now + kDrawInterval;
  // Leaves the last column empty, because a character there makes some terminals wrap.
  write(std::string(kClearLine) + progress_line(progress_, terminal_width(stream_) - 1));
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  write(std::string(kClearLine));
  drawn_ = false;
}

void ProgressBar::write(const std::string& text) {
  std::fputs(text.c_str(), stream_);
  std::fflush(stream_);
}

}  // namespace lockstep::app
