#include "lockstep/receipt/leaf_files.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

std::string record(std::uint64_t step, std::uint64_t count) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &step, 8);
  std::memcpy(bytes.data() + 8, &count, 8);
  return bytes;
}

TEST(StateLeaves, ComeBackByStepAndRoot) {
  const TemporaryFolder folder;
  const std::vector<Digest> one(3), other{Digest{std::byte{1}}};
  StateLeaves leaves(folder / "leaves", 0);
  leaves.add(1, one);
  leaves.add(2, other);
  EXPECT_EQ(read_state_leaves(folder / "leaves", 1, merkle_root(one)), one);
  EXPECT_EQ(read_state_leaves(folder / "leaves", 2, merkle_root(other)), other);
  EXPECT_EQ(read_state_leaves(folder / "leaves", 2, merkle_root(one)), std::nullopt);
  StateLeaves(folder / "leaves", 1);
  EXPECT_EQ(read_state_leaves(folder / "leaves", 2, merkle_root(other)), std::nullopt);
  StateLeaves(folder / "leaves", -1);
  EXPECT_EQ(std::filesystem::file_size(folder / "leaves"), 0U);
}

TEST(StateLeaves, ACountThatTheFileCannotHoldTakesNoMemory) {
  const TemporaryFolder folder;
  const MemoryLimit limit(rlim_t{64} << 20);
  for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{1} << 24, std::uint64_t{1} << 59, UINT64_MAX}) {
    folder.write("leaves", record(1, count) + std::string(32, 'x'));
    EXPECT_EQ(read_state_leaves(folder / "leaves", 1, {}), std::nullopt);
    StateLeaves(folder / "leaves", 1);
    EXPECT_EQ(std::filesystem::file_size(folder / "leaves"), 0U);
  }
}

}  // namespace
}  // namespace lockstep
