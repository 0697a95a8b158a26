#include "lockstep/device/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

TEST(AllocatePages, GivesAlignedMemoryOfAnySize) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, kHuge - 1, kHuge,
                            kHuge + 1, 3 * kHuge + 5000}) {
    void* block = allocate_pages(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (bytes >= kHuge ? kHuge : 64), 0u) << bytes;
    std::memset(block, 0x5a, bytes);
    free_pages(block, bytes);
  }
}

TEST(AllocatePages, NeighborsDoNotOverlap) {
  auto* a = static_cast<char*>(allocate_pages(kHuge + 1));
  auto* b = static_cast<char*>(allocate_pages(kHuge + 1));
  std::memset(a, 1, kHuge + 1);
  std::memset(b, 2, kHuge + 1);
  EXPECT_EQ(a[0] + a[kHuge], 2);
  free_pages(a, kHuge + 1);
  EXPECT_EQ(b[0] + b[kHuge], 4);
  free_pages(b, kHuge + 1);
}

TEST(AllocatePages, NamesTheSizeThatThereIsNoMemoryFor) {
  EXPECT_ERROR(allocate_pages(std::size_t{1} << 62), "cannot allocate 4611686018427387904 bytes");
  EXPECT_ERROR(allocate_pages(std::numeric_limits<std::size_t>::max()), "cannot allocate 18446744073709551615");
}

TEST(AllocatePages, FreeingNullDoesNothing) {
  free_pages(nullptr, 0);
  free_pages(nullptr, kHuge);
}

}  // namespace
}  // namespace lockstep
