#include "lockstep/receipt/receipt.h"

#include "lockstep/receipt/envelope.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

std::string receipt_text() {
  lockstep::Receipt receipt({.version = "0.1.0",
                             .kernel_revision = 1,
                             .device = "cpu",
                             .recipe = {{"seed", 0}, {"learning_rate", 0.1}, {"model", "lenet"}},
                             .train = {60000, Digest{}},
                             .test = DataDigest{10000, Digest{}}});
  for (int i = 1; i <= 3; ++i) receipt.add_link(std::int64_t{i} * 100, Digest{}, 2.0 / i);
  receipt.set_subject("weights", Digest{});
  return receipt.json();
}

const std::vector<std::string_view> kReceiptWords{
    "payload", "payloadType", "signatures", "keyid", "sig", "_type", "subject", "predicate", "links", "final",
    "recipe",  "digest",      "sha256",     "start", "=",   "A===",  "==",      "/",         "+",     "in-toto.io"};

// Made for these tests: openssl genpkey -algorithm ed25519
constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEILyqblzL9pXCnr8Z+ZtWHcW6GKnreLyhP67f3FY7OsmD\n-----END PRIVATE "
    "KEY-----\n";
constexpr const char* kPublic =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA2vYMWzwSyXftOeSX8UIRQU832t9LzOEEvrmenlwGKow=\n-----END PUBLIC "
    "KEY-----\n";

}  // namespace

// Without a key.
Reader receipt() {
  const std::string text = receipt_text();
  return {.read =
              [](const std::string& bytes) {
                const lockstep::Receipt found = parse_receipt(bytes, "fuzz").receipt;
                lockstep::Receipt::from_json(found.json(), "fuzz, written again");
              },
          .seeds = {text, sign_envelope(text, kPrivate, "key")},
          .words = json_words(kReceiptWords),
          .memory_per_byte = 60};
}

// With the key of the one receipt that is right. Another that is accepted is forged.
Reader signed_receipt() {
  const std::string text = receipt_text();
  return {.read =
              [text](const std::string& bytes) {
                const SignedReceipt found = parse_receipt(bytes, "fuzz", kPublic);
                if (found.receipt.json() != text) throw std::logic_error("a forged receipt is accepted");
              },
          .seeds = {sign_envelope(text, kPrivate, "key")},
          .words = json_words(kReceiptWords),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
