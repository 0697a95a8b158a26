#include "lockstep/backend/context.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

TEST(Scratch, IsAlignedAndGrows) {
  Scratch scratch;
  for (std::size_t bytes : {0, 1, 100, 4096, 10}) {
    void* p = scratch.get(bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
    std::memset(p, 1, bytes);
  }
}

TEST(Scratch, KeepsItsMemory) {
  Scratch scratch;
  void* p = scratch.get(1000);
  EXPECT_EQ(scratch.get(10), p);
  EXPECT_EQ(scratch.get(1000), p);
}

}  // namespace
}  // namespace lockstep
