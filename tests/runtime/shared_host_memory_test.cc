#include "lockstep/runtime/shared_host_memory.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(SharedHostMemory, TheRestOfTheProgramAndAReserveCount) {
  std::size_t used = 3'000;  // by code and data, before any tensor
  SharedHostMemory memory(16'000, [&] { return std::optional(used); });
  // An eighth stays free.
  EXPECT_EQ(memory.allocate(11'001), nullptr);
  void* first = memory.allocate(8'000);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(memory.left(), 3'000u);
  // Nobody has written to it yet, so the system counts nothing for it.
  EXPECT_EQ(memory.allocate(3'001), nullptr);
  // Another process begins.
  used = 8'000 + 5'000;
  EXPECT_EQ(memory.allocate(1'001), nullptr);
  EXPECT_EQ(memory.left(), 1'000u);
  void* second = memory.allocate(1'000);
  EXPECT_NE(second, nullptr);
  memory.free(first, 8'000);
  memory.free(second, 1'000);
}

TEST(SharedHostMemory, WithoutAControlGroupAllOfItIsForTensors) {
  SharedHostMemory memory(16'000);
  EXPECT_EQ(memory.allocate(16'001), nullptr);
  void* all = memory.allocate(16'000);
  EXPECT_NE(all, nullptr);
  memory.free(all, 16'000);
}

}  // namespace
}  // namespace lockstep
