#include "lockstep/receipt/data_digest.h"

#include "lockstep/receipt/digest.h"

namespace lockstep {

Digest example_digest(const Example& example) {
  Sha256 hash = leaf_hash();
  add_number(hash, example.size());
  for (const Tensor& part : example) add_tensor(hash, part);
  return digest_of(hash);
}

std::vector<Digest> example_digests(const Dataset& data) {
  // Gives threads whole blocks, because hashing a small example is faster than a change of turns.
  constexpr std::size_t kBlock = 64;
  std::vector<Digest> leaves(static_cast<std::size_t>(data.size()));
  in_parallel((leaves.size() + kBlock - 1) / kBlock, [&](std::size_t block) {
    const std::size_t end = std::min((block + 1) * kBlock, leaves.size());
    for (std::size_t i = block * kBlock; i < end; ++i) {
      leaves[i] = example_digest(data.raw(static_cast<std::int64_t>(i)));
    }
  });
  return leaves;
}

DataDigest data_digest(std::span<const Digest> leaves) { return {std::ssize(leaves), merkle_root(leaves)}; }

}  // namespace lockstep
