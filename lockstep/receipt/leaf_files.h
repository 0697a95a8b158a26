// Internal: the Merkle leaves beside a receipt. Without them a receipt says that data or a state differ; with them,
// also which example or which parameter. They need no trust: their root is in the receipt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/receipt/merkle_tree.h"

namespace lockstep {

// "run/receipt.json", "train": "run/receipt.train.leaves".
std::filesystem::path leaf_file(const std::filesystem::path& receipt, std::string_view kind);

// 32 bytes for each leaf.
void write_leaves(const std::filesystem::path& file, std::span<const Digest> leaves);
// Nothing if there is no file of `count` leaves with this root: a tree's inner nodes have it, too.
std::optional<std::vector<Digest>> read_leaves(const std::filesystem::path& file, std::int64_t count,
                                               const Digest& root);

// The leaves of the state at each link: step, count, leaves; then those of the next one.
class StateLeaves {
 public:
  // Keeps what the file has of steps up to `step`; removes the rest.
  StateLeaves(std::filesystem::path file, std::int64_t step);
  void add(std::int64_t step, std::span<const Digest> leaves);

 private:
  std::filesystem::path file_;
};

// Nothing if the file has none of this step with this root.
std::optional<std::vector<Digest>> read_state_leaves(const std::filesystem::path& file, std::int64_t step,
                                                     const Digest& root);

}  // namespace lockstep
