#include "lockstep/base/inline_function.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

namespace lockstep {
namespace {

using Function = InlineFunction<int(int), 64>;

TEST(InlineFunction, CallsSmallAndLargeClosures) {
  const std::array<int, 4> few = {1, 2, 3, 4};
  std::array<int, 100> many{};
  many[99] = 7;
  Function small = [few](int i) { return few[i]; };
  Function large = [many](int i) { return many[i]; };
  EXPECT_EQ(small(2), 3);
  EXPECT_EQ(large(99), 7);
}

TEST(InlineFunction, HoldsAndDropsItsClosureOnce) {
  auto token = std::make_shared<int>(1);  // a const one would be copied, not moved, into the closure
  std::array<char, 100> ballast{};
  const auto check_handles = [&](Function function) {
    EXPECT_EQ(token.use_count(), 2);
    Function moved = std::move(function);
    EXPECT_FALSE(function);
    EXPECT_TRUE(moved);
    EXPECT_EQ(token.use_count(), 2);
    function = std::move(moved);
    EXPECT_EQ(token.use_count(), 2);
    EXPECT_EQ(function(1), 2);
    function.reset();
    EXPECT_EQ(token.use_count(), 1);
    EXPECT_FALSE(function);
  };
  check_handles([token](int i) { return i + *token; });
  check_handles([token, ballast](int i) { return i + *token + ballast[0]; });
  EXPECT_EQ(token.use_count(), 1);
}

TEST(InlineFunction, TakesClosuresThatCannotBeCopied) {
  InlineFunction<std::string(), 16> function = [p = std::make_unique<std::string>("moved")] { return *p; };
  EXPECT_EQ(function(), "moved");
}

TEST(InlineFunction, PassesReferencesAndStateThrough) {
  InlineFunction<void(int&), 16> count = [n = 0](int& out) mutable { out = ++n; };
  int out = 0;
  count(out);
  count(out);
  EXPECT_EQ(out, 2);
}

}  // namespace
}  // namespace lockstep
