#include "lockstep/receipt/merkle_tree.h"

#include <gtest/gtest.h>

#include "lockstep/receipt/digest.h"

namespace lockstep {
namespace {

Digest leaf(std::string_view text) {
  Sha256 hash = leaf_hash();
  hash.update(std::as_bytes(std::span(text)));
  return digest_of(hash);
}

// The roots that Certificate Transparency's merkle_tree_test.cc expects of its eight inputs.
TEST(MerkleTree, RootsAreThoseOfRfc6962) {
  using namespace std::string_view_literals;
  const std::string_view inputs[] = {""sv,   "\0"sv,   "\x10"sv,     " !"sv,
                                     "01"sv, "@ABC"sv, "PQRSTUVW"sv, "`abcdefghijklmno"sv};
  std::vector<Digest> leaves;
  for (const std::string_view text : inputs) leaves.push_back(leaf(text));
  const std::span all(leaves);
  EXPECT_EQ(hex(merkle_root(all.first(0))), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(merkle_root(all.first(1))), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
  EXPECT_EQ(hex(merkle_root(all.first(2))), "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125");
  EXPECT_EQ(hex(merkle_root(all.first(3))), "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77");
  EXPECT_EQ(hex(merkle_root(all.first(5))), "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4");
  EXPECT_EQ(hex(merkle_root(all)), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
}

TEST(MerkleTree, ProofsShowOneLeafAtOnePlace) {
  std::vector<Digest> leaves;
  for (std::size_t count = 1; count <= 17; ++count) {
    leaves.push_back(leaf(std::to_string(count)));
    const Digest root = merkle_root(leaves);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Digest> proof = merkle_proof(leaves, i);
      EXPECT_TRUE(in_merkle_tree(leaves[i], i, count, proof, root));
      EXPECT_FALSE(in_merkle_tree(leaf("other"), i, count, proof, root));
      EXPECT_FALSE(in_merkle_tree(leaves[i], i, i, proof, root));
      EXPECT_EQ(in_merkle_tree(leaves[i], (i + 1) % count, count, proof, root), count == 1);
      proof.emplace_back();
      EXPECT_FALSE(in_merkle_tree(leaves[i], i, count, proof, root));
    }
  }
  EXPECT_EQ(parse_digest(hex(leaves[3])), leaves[3]);
  EXPECT_EQ(parse_digest(hex(leaves[3]).substr(1) + "G"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
