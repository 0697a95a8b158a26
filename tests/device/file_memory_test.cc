#include "lockstep/device/file_memory.h"

#include <gtest/gtest.h>

#include "lockstep/device/topology.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(FileMemory, IsInProportionToTheFile) {
  EXPECT_EQ(memory_in_proportion(0), 64U << 20);
  EXPECT_EQ(memory_in_proportion(1 << 20), 256U << 20);
  EXPECT_EQ(memory_in_proportion(UINT64_MAX), UINT64_MAX);
  check_file_memory(64 << 20, 0, "f", "all");
  EXPECT_ERROR(check_file_memory((64 << 20) + 1, 1000, "f", "8 x 8 pixels", "max_pixels = 64 reads it"),
               "f: 8 x 8 pixels: takes 67108865 bytes of memory, the limit for a file of 1000 bytes is 67108864; "
               "max_pixels = 64 reads it");
}

TEST(FileMemory, IsPartOfWhatIsLeft) {
  EXPECT_LT(memory_left(), total_memory());
  EXPECT_GT(memory_left(), 0U);
  EXPECT_LE(memory_for_file(kAnyProportion), total_memory());
  EXPECT_ERROR(check_file_memory(total_memory(), kAnyProportion, "f", "all"), "bytes of memory, this process has ");
}

}  // namespace
}  // namespace lockstep
