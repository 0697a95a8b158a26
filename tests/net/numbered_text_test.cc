#include "lockstep/net/numbered_text.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(NumberedText, SurvivesARoundTrip) {
  const NumberedText lost{-1, "ranks disagree:\n  rank 0 called all-reduce "};
  const NumberedText parsed = parse_numbered_text("a rank", lost.str(), -1, 7);
  EXPECT_EQ(parsed.number, lost.number);
  EXPECT_EQ(parsed.text, lost.text);
}

TEST(NumberedText, MayHaveNoText) {
  EXPECT_EQ(parse_numbered_text("a rank", "3", 0, 7).text, "");
  EXPECT_EQ(parse_numbered_text("a rank", "3 ", 0, 7).text, "");
}

TEST(NumberedText, RejectsAnotherNumber) {
  EXPECT_ERROR(parse_numbered_text("a lost rank", "8 rank 8 lost", 0, 7),
               "a lost rank is \"8\", expected an integer from 0 to 7");
  EXPECT_ERROR(parse_numbered_text("a lost rank", "3x rank 3 lost", 0, 7), "a lost rank is \"3x\"");
  EXPECT_ERROR(parse_numbered_text("a lost rank", "", 0, 7), "a lost rank is \"\"");
}

}  // namespace
}  // namespace lockstep
