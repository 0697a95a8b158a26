// Digests, and a Merkle tree over them as in RFC 6962: one root stands for all leaves, and a proof of log2(n) digests
// shows that a leaf is among them.
//
//   const Digest root = merkle_root(leaves);
//   const bool belongs = in_merkle_tree(leaves[7], 7, leaves.size(), merkle_proof(leaves, 7), root);
//
// A leaf is SHA-256(0x00 | its bytes), an inner node SHA-256(0x01 | left | right). The left subtree of n leaves has the
// largest power of two below n.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// SHA-256.
using Digest = std::array<std::byte, 32>;

// 64 lower-case hexadecimal digits.
std::string hex(const Digest& digest);
// Returns nothing for any other text.
std::optional<Digest> parse_digest(std::string_view text);

// The root of no leaves is the SHA-256 of no bytes.
Digest merkle_root(std::span<const Digest> leaves);
// The siblings on the way from leaf `index` to the root, lowest first. Throws if there is no such leaf.
std::vector<Digest> merkle_proof(std::span<const Digest> leaves, std::size_t index);
// Whether the proof shows that `leaf` is leaf `index` of `count`.
bool in_merkle_tree(const Digest& leaf, std::size_t index, std::size_t count, std::span<const Digest> proof,
                    const Digest& root);

}  // namespace lockstep
