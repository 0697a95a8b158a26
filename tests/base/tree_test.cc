#include "lockstep/base/tree.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

// The tree over [begin, begin + n) in words; leaves named in `missing` are missing.
std::string tree(std::size_t begin, std::size_t n, const std::string& missing = "") {
  auto leaf = [&](std::size_t i) {
    std::string name = std::to_string(i);
    return missing.find(name) == std::string::npos ? std::optional(name) : std::nullopt;
  };
  auto join = [](const std::string& a, const std::string& b) { return std::optional("(" + a + b + ")"); };
  return tree_fold(begin, n, leaf, join).value_or("");
}

TEST(Tree, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(tree_split(2), 1u);
  EXPECT_EQ(tree_split(3), 2u);
  EXPECT_EQ(tree_split(4), 2u);
  EXPECT_EQ(tree_split(5), 4u);
  EXPECT_EQ(tree_split(8), 4u);
  EXPECT_EQ(tree_split(9), 8u);
}

TEST(Tree, FoldsInOneOrder) {
  EXPECT_EQ(tree(0, 0), "");
  EXPECT_EQ(tree(0, 1), "0");
  EXPECT_EQ(tree(0, 4), "((01)(23))");
  EXPECT_EQ(tree(0, 7), "(((01)(23))((45)6))");
  EXPECT_EQ(tree(0, 9), "((((01)(23))((45)(67)))8)");
}

TEST(Tree, AlignedRunsAreSubtrees) {
  EXPECT_NE(tree(0, 7).find(tree(4, 2)), std::string::npos);
  EXPECT_NE(tree(0, 9).find(tree(4, 4)), std::string::npos);
}

TEST(Tree, MissingLeavesLetTheirSiblingsPass) {
  EXPECT_EQ(tree(0, 4, "1"), "(0(23))");
  EXPECT_EQ(tree(0, 5, "0123"), "4");
  EXPECT_EQ(tree(0, 4, "02"), "(13)");
  EXPECT_EQ(tree(0, 3, "012"), "");
}

}  // namespace
}  // namespace lockstep
