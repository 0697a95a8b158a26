#include "lockstep/receipt/merkle_tree.h"

#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/hmac.h"
#include "lockstep/receipt/digest.h"

namespace lockstep {
namespace {

Digest node(const Digest& left, const Digest& right) {
  Sha256 hash;
  const std::byte kind{1};
  hash.update({&kind, 1});
  hash.update(left);
  hash.update(right);
  return digest_of(hash);
}

// The size of the left subtree, for n of at least 2.
std::size_t left_size(std::size_t n) { return std::bit_floor(n - 1); }

std::optional<unsigned> digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

}  // namespace

Digest digest_of(const Sha256& hash) {
  const std::string bytes = hash.digest();
  Digest digest;
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

std::string hex(const Digest& digest) {
  return hexadecimal({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::optional<Digest> parse_digest(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const auto high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest[i] = static_cast<std::byte>(16 * *high + *low);
  }
  return digest;
}

Digest merkle_root(std::span<const Digest> leaves) {
  if (leaves.empty()) return digest_of(Sha256());
  if (leaves.size() == 1) return leaves[0];
  const std::size_t left = left_size(leaves.size());
  return node(merkle_root(leaves.first(left)), merkle_root(leaves.subspan(left)));
}

std::vector<Digest> merkle_proof(std::span<const Digest> leaves, std::size_t index) {
  check(index < leaves.size(), "merkle proof: leaf {} of {}", index, leaves.size());
  if (leaves.size() == 1) return {};
  const std::size_t left = left_size(leaves.size());
  const bool is_left = index < left;
  std::vector<Digest> proof =
      is_left ? merkle_proof(leaves.first(left), index) : merkle_proof(leaves.subspan(left), index - left);
  proof.push_back(merkle_root(is_left ? leaves.subspan(left) : leaves.first(left)));
  return proof;
}

bool in_merkle_tree(const Digest& leaf, std::size_t index, std::size_t count, std::span<const Digest> proof,
                    const Digest& root) {
  if (index >= count) return false;
  // Walks from the root to the leaf; right[i] tells whether level i, from the bottom, turns right.
  std::vector<bool> right;
  while (count > 1) {
    const std::size_t left = left_size(count);
    right.insert(right.begin(), index >= left);
    count = index >= left ? count - left : left;
    if (right.front()) index -= left;
  }
  if (right.size() != proof.size()) return false;
  Digest digest = leaf;
  for (std::size_t i = 0; i < proof.size(); ++i) digest = right[i] ? node(proof[i], digest) : node(digest, proof[i]);
  return digest == root;
}

}  // namespace lockstep
