#include "lockstep/receipt/receipt_writer.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/base/option_error.h"
#include "lockstep/base/private_file.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/receipt/digest.h"
#include "lockstep/receipt/signature.h"

namespace lockstep {
namespace {

constexpr std::string_view kCheckpointFile = "/weights.safetensors";

// Digest of the weights of a checkpoint, as its writer computed it.
Digest digest_in_manifest(const std::filesystem::path& checkpoint) {
  const CheckpointManifest manifest = read_manifest(checkpoint);
  const auto weights = manifest.files.find("weights.safetensors");
  const auto digest = weights == manifest.files.end() ? std::nullopt : parse_digest(weights->second.sha256);
  check(digest.has_value(), "{}: the manifest has no SHA-256 of weights.safetensors", checkpoint.string());
  return *digest;
}

// Returns the receipt that the run continues. Copies its leaves beside `file` if it is elsewhere.
std::optional<Receipt> found_receipt(const ReceiptOptions& options, const std::filesystem::path& resumed_from) {
  const std::filesystem::path& file = options.file;
  std::error_code error;
  std::filesystem::path found = file;
  if (!std::filesystem::exists(file, error)) {
    found = resumed_from / file.filename();
    if (resumed_from.empty() || !std::filesystem::exists(found, error)) return std::nullopt;
    std::filesystem::copy_file(leaf_file(found, "state"), leaf_file(file, "state"),
                               std::filesystem::copy_options::overwrite_existing, error);  // optional
  }
  SignedReceipt earlier = read_receipt(found);
  check(!options.sign_key.empty() || earlier.key_id.empty(),
        "{}: the receipt of the earlier steps is signed with the key {:.16}…, expected this key to continue it, or "
        "another file",
        found.string(), earlier.key_id);
  // Signing vouches for the earlier links, too.
  check(options.sign_key.empty() || is_signed_with(found, earlier.receipt, options.sign_key),
        "{}: the receipt of the earlier steps is not signed with {}: name another file to continue it", found.string(),
        options.sign_key.string());
  return std::move(earlier.receipt);
}

// Throws unless the receipt is of the run whose head is `mine`.
void check_continues(const Receipt& receipt, const Receipt::Head& mine, const std::string& file) {
  const Receipt::Head& found = receipt.head();
  const char* what = recipe_hash(found.recipe) != recipe_hash(mine.recipe) ? "another recipe"
                     : found.train != mine.train                           ? "other training data"
                     : found.test != mine.test                             ? "other test data"
                     : found.version != mine.version || found.kernel_revision != mine.kernel_revision
                         ? "another version of Lockstep"
                     : found.device != mine.device ? "another kind of device"
                                                   : nullptr;
  check(what == nullptr, "{}: the receipt has {} than the run that goes on: name another file to continue it", file,
        what ? what : "");
}

}  // namespace

ReceiptWriter::ReceiptWriter(ReceiptOptions options, Receipt::Head head, const Dataset& train, const Dataset* test,
                             std::int64_t step, const StateDigest& state, const std::filesystem::path& resumed_from)
    : options_(std::move(options)) {
  const std::filesystem::path& file = options_.file;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  // An unusable key is an error now, not after the first steps.
  if (!options_.sign_key.empty()) {
    try {
      sign_ed25519(read_private_file(options_.sign_key, 1 << 16, "sign_key"), options_.sign_key.string(), "");
    } catch (const Error& error) {
      throw OptionError(error.what(), {"sign_key"});
    }
  }
  const std::vector<Digest> train_leaves = example_digests(train);
  const std::vector<Digest> test_leaves = test != nullptr ? example_digests(*test) : std::vector<Digest>();
  head.train = data_digest(train_leaves);
  if (test != nullptr) head.test = data_digest(test_leaves);
  const auto write_data = [&] {
    write_leaves(leaf_file(file, "train"), train_leaves);
    if (test != nullptr) write_leaves(leaf_file(file, "test"), test_leaves);
  };
  std::optional<Receipt> found = step > 0 ? found_receipt(options_, resumed_from) : std::nullopt;
  if (found && found->head().start_step <= step) {
    check_continues(*found, head, file.string());
    found->cut_back(step);
    check(found->steps() < step || found->links().empty() || found->links().back().state == state.root,
          "{}: the state of step {} is not that of the checkpoint: the receipt is of another run: name another file",
          file.string(), step);
    write_data();  // not before: the files beside a receipt of another run stay
    receipt_ = std::move(found);
    states_.emplace(leaf_file(file, "state"), step);
    return;
  }
  // Removes an older file, so that nobody takes it for this run's receipt if the run ends before its first link.
  std::error_code none;
  std::filesystem::remove(file, none);
  write_data();
  head.start_step = step;
  head.start = state.root;
  receipt_.emplace(std::move(head));
  states_.emplace(leaf_file(file, "state"), -1);
  states_->add(step, state.leaves);
}

void ReceiptWriter::add_link(std::int64_t step, const StateDigest& state, double loss) {
  receipt_->add_link(step, state.root, loss);
  states_->add(step, state.leaves);
}

void ReceiptWriter::set_checkpoints(const std::vector<std::filesystem::path>& folders) {
  std::set<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    names.insert(folder.filename().string() + std::string(kCheckpointFile));
  }
  const std::vector<ReceiptSubject> before = receipt_->subjects();
  for (const ReceiptSubject& subject : before) {
    if (subject.name.ends_with(kCheckpointFile) && !names.contains(subject.name))
      receipt_->remove_subject(subject.name);
  }
  for (const std::filesystem::path& folder : folders) {
    const std::string name = folder.filename().string() + std::string(kCheckpointFile);
    if (std::ranges::find(before, name, &ReceiptSubject::name) != before.end()) continue;
    try {
      receipt_->set_subject(name, digest_in_manifest(folder));
    } catch (const Error&) {
      // Leaves out an older checkpoint that is damaged, which resume() passes over.
      if (folder == folders.front()) throw;
    }
  }
}

bool ReceiptWriter::due() const {
  constexpr std::chrono::seconds kApart{10};
  return std::chrono::steady_clock::now() - written_ >= kApart;
}

void ReceiptWriter::write() {
  // An in-toto statement needs a subject.
  if (receipt_->subjects().empty()) return;
  write_receipt(options_.file, *receipt_, options_.sign_key);
  written_ = std::chrono::steady_clock::now();
}

}  // namespace lockstep
