#include "lockstep/launch/line_prefixer.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

struct Lines {
  std::vector<std::string> lines;
  LinePrefixer prefixer{"[rank 0] ", [this](std::string_view line) { lines.emplace_back(line); }};
};

TEST(LinePrefixer, MarksWholeLinesHoweverTheyCome) {
  const std::string text = "one\ntwo three\n\nfour\n";
  const std::vector<std::string> expected{"[rank 0] one\n", "[rank 0] two three\n", "[rank 0] \n", "[rank 0] four\n"};
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    Lines l;
    for (std::size_t at = 0; at < text.size(); at += piece) l.prefixer.feed(text.substr(at, piece));
    EXPECT_EQ(l.lines, expected) << piece;
    l.prefixer.finish();
    EXPECT_EQ(l.lines, expected) << piece;
  }
}

TEST(LinePrefixer, TheRestOfAStreamIsALine) {
  Lines l;
  l.prefixer.feed("no end");
  EXPECT_TRUE(l.lines.empty());
  l.prefixer.finish();
  l.prefixer.finish();
  EXPECT_EQ(l.lines, std::vector<std::string>{"[rank 0] no end\n"});
}

TEST(LinePrefixer, ALineWithoutEndIsCut) {
  Lines l;
  for (int i = 0; i < 1000; ++i) l.prefixer.feed(std::string(1000, 'x'));
  l.prefixer.finish();
  std::size_t x = 0;
  for (const std::string& line : l.lines) {
    EXPECT_LE(line.size(), 9 + 65536 + 1);
    EXPECT_TRUE(line.starts_with("[rank 0] x"));
    x += line.size() - 10;
  }
  EXPECT_EQ(x, 1'000'000u);
}

}  // namespace
}  // namespace lockstep
