#include "lockstep/base/small_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(SmallVector, GrowsFromItsRoomToTheHeap) {
  SmallVector<std::string, 2> v = {"a"};
  EXPECT_THAT(v, ElementsAre("a"));
  v.push_back("b");
  EXPECT_THAT(v, ElementsAre("a", "b"));
  v.push_back("c");
  v.push_back("d");
  EXPECT_THAT(v, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(v[3], "d");
}

TEST(SmallVector, CopiesAreApart) {
  for (const auto& v : {SmallVector<int, 2>{1}, SmallVector<int, 2>{1, 2, 3}}) {
    auto copy = v;
    copy[0] = 7;
    EXPECT_EQ(v[0], 1);
    EXPECT_EQ(copy.size(), v.size());
  }
}

TEST(SmallVector, MovingLeavesNothingBehind) {
  for (auto v : {SmallVector<std::shared_ptr<int>, 2>{std::make_shared<int>(1)},
                 SmallVector<std::shared_ptr<int>, 2>{nullptr, nullptr, std::make_shared<int>(1)}}) {
    const std::size_t size = v.size();
    auto moved = std::move(v);
    EXPECT_EQ(moved.size(), size);
    EXPECT_EQ(moved[size - 1].use_count(), 2);  // the other one is in the list that is gone through
    EXPECT_TRUE(v.empty());
    v = std::move(moved);
    EXPECT_EQ(v.size(), size);
    EXPECT_TRUE(moved.empty());
  }
}

TEST(SmallVector, ClearDropsTheElementsAtOnce) {
  const auto token = std::make_shared<int>(1);
  SmallVector<std::shared_ptr<int>, 2> v = {token, token};
  v.clear();
  EXPECT_EQ(token.use_count(), 1);
  v = {token, token, token};
  EXPECT_EQ(token.use_count(), 4);
  v.clear();
  EXPECT_EQ(token.use_count(), 1);
  v.push_back(token);
  EXPECT_THAT(v, ElementsAre(token));
}

}  // namespace
}  // namespace lockstep
