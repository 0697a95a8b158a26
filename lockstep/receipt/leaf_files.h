// Internal: files of Merkle leaves beside a receipt. The receipt alone shows that data or a state differ; the leaves
// show which example or parameter differs. They need no trust, because their root is in the receipt.
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
// Returns nothing unless the file has `count` leaves with this root. A row of inner nodes has the same root.
std::optional<std::vector<Digest>> read_leaves(const std::filesystem::path& file, std::int64_t count,
                                               const Digest& root);

// File with the leaves of the state at each link. A record is step, count, leaves.
class StateLeaves {
 public:
  // Keeps the records of steps up to `step`, and removes the others; -1 keeps none.
  StateLeaves(std::filesystem::path file, std::int64_t step);
  void add(std::int64_t step, std::span<const Digest> leaves);

 private:
  std::filesystem::path file_;
};

// Returns nothing if the file has no record of this step with this root.
std::optional<std::vector<Digest>> read_state_leaves(const std::filesystem::path& file, std::int64_t step,
                                                     const Digest& root);

}  // namespace lockstep
