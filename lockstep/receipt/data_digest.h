// What a receipt says about data: the root of a Merkle tree over all examples, so that a proof can show that one
// example belongs, and a comparison can find one that differs.
//
//   const std::vector<Digest> leaves = example_digests(photos);
//   const DataDigest digest = data_digest(leaves);
//
// Examples are taken as Dataset::raw() gives them: without ImageTransforms, which the recipe names.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/receipt/merkle_tree.h"

namespace LOCKSTEP_API lockstep {

struct DataDigest {
  std::int64_t examples = 0;
  Digest root{};
  bool operator==(const DataDigest&) const = default;
};

// The leaf of an example: SHA-256 of a zero byte, the number of parts, and for each part its type's name, its shape,
// and its elements. docs/receipts.md has the bytes.
Digest example_digest(const Example& example);
// Digests of all examples, in order. Reads them all, with a thread for each core.
std::vector<Digest> example_digests(const Dataset& data);
DataDigest data_digest(std::span<const Digest> leaves);

}  // namespace lockstep
