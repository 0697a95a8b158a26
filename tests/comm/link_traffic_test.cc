#include "lockstep/comm/link_traffic.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

// Bytes go to the one that gets them, also those of a group that was made from this one.
TEST(LinkTraffic, CountsWhatEachRankSends) {
  const auto groups = make_local_groups(3);
  std::vector<std::jthread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&group] {
      std::vector<float> data(1000, 1);
      const auto again = group->subgroup({0, 1, 2});
      if (group->rank() == 0) again->send({data.data(), data.size(), DType::f32}, 2, 7, {.wait = true});
      if (group->rank() == 2) again->receive({data.data(), data.size(), DType::f32}, 0, 7, {.wait = true});
      group->broadcast({data.data(), data.size(), DType::f32}, 1, {.wait = true});
    });
  }
  threads.clear();
  const LinkTraffic first = link_traffic(*groups[0]), second = link_traffic(*groups[1]);
  ASSERT_EQ(first.sent_bytes.size(), 3U);
  EXPECT_EQ(first.sent_bytes[0], 0U);
  EXPECT_EQ(first.sent_bytes[1], 0U);
  EXPECT_EQ(first.sent_bytes[2], 4000U);
  EXPECT_EQ(second.sent_bytes[0], 4000U);
  EXPECT_EQ(second.sent_bytes[2], 4000U);
  EXPECT_GT(first.exchanging.count(), 0);
  EXPECT_TRUE(link_traffic(*make_local_groups(1)[0]).sent_bytes.empty());
}

}  // namespace
}  // namespace lockstep
