// A receipt of a training run: what was trained, on which data, and a chain of hashes over its steps. Whoever has the
// data and the receipt can train any step again, on other hardware, and must get the same bits; audit() in
// train/audit.h does.
//
//   Trainer trainer(net, sgd, train, test, {.receipt = {.file = "run/receipt.json", .sign_key = "key.pem"}});
//
//   const SignedReceipt found = read_receipt("run/receipt.json", "public.pem");
//   fmt::print("{} steps, {}\n", found.receipt.steps(), hex(found.receipt.final_hash()));
//
// The file is an in-toto statement, in a DSSE envelope if it is signed. docs/receipts.md has every field, and says what
// a receipt does not prove.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/export.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/receipt/data_digest.h"
#include "lockstep/receipt/merkle_tree.h"

namespace LOCKSTEP_API lockstep {

struct ReceiptOptions {
  // Rank 0 writes the receipt here, and the Merkle leaves of data and states beside it. Empty: no receipt.
  std::filesystem::path file{};
  // Steps between two links of the chain. Each checkpoint, and the end of the run, has a link, too. A link waits for
  // the step, and hashes all weights and the optimizer's state.
  std::int64_t every = 100;
  // An Ed25519 key in PEM (openssl genpkey -algorithm ed25519), with which each version of the file is signed. Empty:
  // no signature.
  std::filesystem::path sign_key{};
};

// The state after a step: h_k = SHA-256(h_{k-1}, step, state, loss).
struct ReceiptLink {
  std::int64_t step = 0;
  Digest state{};   // root over parameters, buffers, and the optimizer's state
  double loss = 0;  // of this step
  Digest hash{};    // h_k
};

// A file of the run by its name, or the entry "weights", whose hash is weights_sha256() after the last link.
struct ReceiptSubject {
  std::string name;
  Digest sha256{};
};

class Receipt {
 public:
  // What decides the bits. h_0 is its hash.
  struct Head {
    std::string version;               // of Lockstep
    std::int64_t kernel_revision = 0;  // LOCKSTEP_KERNEL_REVISION
    std::string device;                // "cpu" or "cuda"
    Recipe recipe;
    DataDigest train;
    std::optional<DataDigest> test;
    // The step before the first one of the receipt, 0 unless the receipt of earlier steps was lost, and its state.
    std::int64_t start_step = 0;
    Digest start{};
  };

  explicit Receipt(Head head);

  const Head& head() const { return head_; }
  const std::vector<ReceiptLink>& links() const { return links_; }
  // Step of the last link, or start_step without links.
  std::int64_t steps() const { return links_.empty() ? head_.start_step : links_.back().step; }
  // Hash of the last link's hash and the subjects.
  Digest final_hash() const;

  // Throws unless the step is later than all others and the loss is finite.
  void add_link(std::int64_t step, const Digest& state, double loss);
  // Removes the links of later steps, and all subjects.
  void cut_back(std::int64_t step);
  const std::vector<ReceiptSubject>& subjects() const { return subjects_; }
  // Replaces the subject of that name, or adds one after the others.
  void set_subject(const std::string& name, const Digest& sha256);
  void remove_subject(const std::string& name);

  // Convert to the statement and back. Safe for text from anywhere: throws an Error that begins with `origin` for
  // anything but a statement whose links and final hash follow from each other and from the head.
  std::string json() const;
  static Receipt from_json(std::string_view text, std::string_view origin);

 private:
  Head head_;
  Digest begin_;  // h_0
  std::vector<ReceiptLink> links_;
  std::vector<ReceiptSubject> subjects_;
};

struct SignedReceipt {
  Receipt receipt;
  // SHA-256 of the public key, in DER, that the envelope names. Empty: there is no signature.
  std::string key_id{};
};

// With a public key (PEM), throws if the receipt has no signature of this key, or if it was changed after it was
// signed. Without one, a signature is not checked.
SignedReceipt read_receipt(const std::filesystem::path& file, const std::filesystem::path& public_key = {});
// The same for text. `public_key` is PEM itself, not a file.
SignedReceipt parse_receipt(std::string_view text, std::string_view origin, std::string_view public_key = {});
// Returns the text of a receipt file, signed if there is a private key (PEM).
std::string receipt_text(const Receipt& receipt, const std::filesystem::path& sign_key = {});
// Replaces the file atomically.
void write_receipt(const std::filesystem::path& file, const Receipt& receipt,
                   const std::filesystem::path& sign_key = {});

// Whether the file is this receipt with the signature of this private key (PEM).
bool is_signed_with(const std::filesystem::path& file, const Receipt& receipt, const std::filesystem::path& sign_key);

// Adds a file that was made after the run, such as exported weights, to its receipt, and signs it again. Throws if the
// receipt is not signed with the key of `receipt`.
void add_to_receipt(const ReceiptOptions& receipt, const std::filesystem::path& made);

}  // namespace lockstep
