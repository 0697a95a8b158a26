// Internal: the receipt of a run in progress. A killed run leaves a receipt that is valid up to its last link, and a
// resumed one continues it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/receipt/leaf_files.h"
#include "lockstep/receipt/receipt.h"
#include "lockstep/receipt/state_digest.h"

namespace lockstep {

class ReceiptWriter {
 public:
  // `head` lacks data and start. `step` and `state` are the position of the run. After the first step, continues the
  // receipt in the file or, if there is none, that of the same name in `resumed_from`; a receipt of another run is an
  // error. Without a receipt, begins one at this step.
  ReceiptWriter(ReceiptOptions options, Receipt::Head head, const Dataset& train, const Dataset* test,
                std::int64_t step, const StateDigest& state, const std::filesystem::path& resumed_from);

  std::int64_t steps() const { return receipt_->steps(); }
  void add_link(std::int64_t step, const StateDigest& state, double loss);
  // weights_sha256() after the last link.
  void set_weights(const Digest& weights) { receipt_->set_subject("weights", weights); }
  // Makes the weights of these checkpoints, newest first, subjects with the hashes of their manifests. Removes the
  // subjects of other checkpoints.
  void set_checkpoints(const std::vector<std::filesystem::path>& folders);
  // Whether 10 s have passed since the last write(), whose file grows with each link.
  bool due() const;
  void write();

 private:
  ReceiptOptions options_;
  std::optional<Receipt> receipt_;
  std::optional<StateLeaves> states_;
  std::chrono::steady_clock::time_point written_{};
};

}  // namespace lockstep
