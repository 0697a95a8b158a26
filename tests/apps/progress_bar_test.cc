#include "apps/lockstep/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/temporary_folder.h"

namespace lockstep::app {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kClearLine = "\r\x1b[K";

TEST(ProgressLine, ShowsHowFarHowFastAndHowLong) {
  EXPECT_EQ(progress_line({"epoch 3/10", 25600, 60000, 20.75}, 79),
            "epoch 3/10 [===========>                ] 25600/60000  1234 images/s  0:28 left");
  EXPECT_EQ(progress_line({"epoch 1/1", 0, 100, 0}, 34), "epoch 1/1 [>               ] 0/100");
  EXPECT_EQ(progress_line({"e", 100, 100, 3}, 48), "e [==========] 100/100  33.3 images/s  0:00 left");
}

TEST(ProgressLine, ShowsTheTimeOfAllEpochs) {
  const Progress progress{.label = "e", .done = 100, .total = 200, .seconds = 10, .later = 700};
  EXPECT_THAT(progress_line(progress, 79), ::testing::EndsWith(" 100/200  10.0 images/s  0:10 left, 1:20 in all"));
  EXPECT_THAT(progress_line(progress, 42), ::testing::EndsWith("]  0:10 left, 1:20 in all"));
  EXPECT_EQ(progress_text(progress), "e: 100/200  10.0 images/s  0:10 left, 1:20 in all");
}

TEST(ProgressLine, TakesAtMostTheWidthAndDropsNumbers) {
  const Progress progress{"epoch 3/10", 25600, 60000, 20.75};
  EXPECT_EQ(progress_line(progress, 50), "epoch 3/10 [=====>        ] 25600/60000  0:28 left");
  EXPECT_EQ(progress_line(progress, 40), "epoch 3/10 [======>         ]  0:28 left");
  EXPECT_EQ(progress_line(progress, 30), "epoch 3/10 42 %");
  EXPECT_EQ(progress_line(progress, 5), "epoch");
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(progress_line(progress, width).size(), static_cast<std::size_t>(width));
  }
}

TEST(ProgressLine, TimesAreReadable) {
  EXPECT_THAT(progress_line({"e", 1, 1000, 1}, 80), HasSubstr("16:39 left"));
  EXPECT_THAT(progress_line({"e", 1, 100000, 1}, 80), HasSubstr("27:46:39 left"));
  EXPECT_THAT(progress_line({"e", 1, 1000000000000, 1e6}, 80), HasSubstr("99:59:59 left"));
}

// The first steps are done when the bar appears, all but the last ones where a run is resumed.
TEST(ProgressLine, WhatWasDoneBeforeItsTimeMakesNobodyFaster) {
  EXPECT_THAT(progress_line({"e", 900, 1000, 2, 800}, 80), HasSubstr(" 900/1000  50.0 images/s  0:02 left"));
  EXPECT_THAT(progress_line({"e", 800, 1000, 0.001, 800}, 80), ::testing::EndsWith(" 800/1000"));
}

TEST(ProgressLine, OddCountsDoNoHarm) {
  EXPECT_THAT(progress_line({"e", 0, 0, 1}, 80), StartsWith("e [>"));
  EXPECT_THAT(progress_line({"e", 120, 100, 1}, 80), HasSubstr("=] 120/100"));
}

// A terminal whose other end the test holds.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    int slave = -1;
    if (::openpty(&master_, &slave, nullptr, nullptr, &size) != 0) throw std::runtime_error("no terminal");
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
    stream_ = ::fdopen(slave, "w");
  }
  ~Terminal() {
    std::fclose(stream_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* stream() const { return stream_; }
  // The text that appeared since the last call.
  std::string shown() {
    std::string text(4096, '\0');
    const ssize_t n = ::read(master_, text.data(), text.size());
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

 private:
  int master_ = -1;
  std::FILE* stream_ = nullptr;
};

TEST(ProgressBar, DrawsOnATerminalAndClearsTheLine) {
  Terminal terminal(60);
  {
    ProgressBar bar(terminal.stream(), "epoch 1/2", 1000);
    EXPECT_EQ(terminal.shown(), "");
    bar.update(500);
    const std::string shown = terminal.shown();
    EXPECT_THAT(shown, StartsWith(std::string(kClearLine) + "epoch 1/2 [="));
    EXPECT_THAT(shown, HasSubstr("500/1000"));
    EXPECT_LE(shown.size(), kClearLine.size() + 59);
    EXPECT_EQ(shown.find('\n'), shown.npos);
  }
  EXPECT_EQ(terminal.shown(), kClearLine);
}

TEST(ProgressBar, DrawsTenTimesASecondAtMost) {
  Terminal terminal(80);
  ProgressBar bar(terminal.stream(), "epoch 1/2", 1000);
  const auto start = ProgressBar::Clock::now();
  bar.update(1, start);
  EXPECT_NE(terminal.shown(), "");
  bar.update(2, start + 99ms);
  EXPECT_EQ(terminal.shown(), "");
  bar.update(3, start + 100ms);
  EXPECT_THAT(terminal.shown(), HasSubstr("3/1000"));
}

TEST(ProgressBar, ClearsOnceAndDrawsAgain) {
  Terminal terminal(80);
  ProgressBar bar(terminal.stream(), "epoch 1/2", 1000);
  bar.clear();
  EXPECT_EQ(terminal.shown(), "");
  bar.update(1);
  terminal.shown();
  bar.clear();
  bar.clear();
  EXPECT_EQ(terminal.shown(), kClearLine);
  bar.update(2, ProgressBar::Clock::now() + 100ms);
  EXPECT_THAT(terminal.shown(), HasSubstr("2/1000"));
}

TEST(ProgressBar, WritesALineEveryTenSecondsWhereThereIsNoTerminal) {
  TemporaryFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  ASSERT_NE(file, nullptr);
  {
    ProgressBar bar(file, "epoch 1/2", 1000);
    const auto start = ProgressBar::Clock::now();
    bar.update(100, start);
    bar.update(190, start + 9999ms);
    bar.update(200, start + 10s);
    bar.update(250, start + 19s);
    bar.update(300, start + 25s);
    bar.clear();
  }
  std::fclose(file);
  EXPECT_EQ(folder.read("out"),
            "epoch 1/2: 200/1000  10.0 images/s  1:20 left\n"
            "epoch 1/2: 300/1000  8.0 images/s  1:28 left\n");
}

}  // namespace
}  // namespace lockstep::app
