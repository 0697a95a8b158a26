#include "lockstep/base/environment.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/environment_variable.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(Environment, TellsEmptyFromUnset) {
  EnvironmentVariable unset("LOCKSTEP_TEST_UNSET", nullptr);
  EnvironmentVariable empty("LOCKSTEP_TEST_EMPTY", "");
  EXPECT_EQ(environment("LOCKSTEP_TEST_UNSET"), std::nullopt);
  EXPECT_EQ(environment("LOCKSTEP_TEST_EMPTY"), "");
}

TEST(ParseInteger, TakesDecimalIntegersInRange) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(parse_integer("N", "7", 0, 7), 7);
  EXPECT_EQ(parse_integer("N", "-3", -3, 7), -3);
  EXPECT_EQ(parse_integer("N", "9223372036854775807", kMin, kMax), kMax);
  EXPECT_EQ(parse_integer("N", "-9223372036854775808", kMin, kMax), kMin);
}

TEST(ParseInteger, RefusesEverythingElse) {
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "two", "-1", "8", "9223372036854775808"}) {
    EXPECT_ERROR(parse_integer("N", text, 0, 7), fmt::format("N is \"{}\", expected an integer from 0 to 7", text));
  }
}

TEST(EnvironmentInteger, NamesTheVariable) {
  EnvironmentVariable unset("LOCKSTEP_TEST_UNSET", nullptr);
  EnvironmentVariable good("LOCKSTEP_TEST_GOOD", "5");
  EnvironmentVariable bad("LOCKSTEP_TEST_BAD", "five");
  EXPECT_EQ(environment_integer("LOCKSTEP_TEST_UNSET", 0, 9), std::nullopt);
  EXPECT_EQ(environment_integer("LOCKSTEP_TEST_GOOD", 0, 9), 5);
  EXPECT_ERROR(environment_integer("LOCKSTEP_TEST_BAD", 0, 9), "LOCKSTEP_TEST_BAD is \"five\"");
}

}  // namespace
}  // namespace lockstep
