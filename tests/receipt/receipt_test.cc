#include "lockstep/receipt/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transforms/image_transform.h"
#include "lockstep/receipt/digest.h"
#include "lockstep/receipt/envelope.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// openssl genpkey -algorithm ed25519
constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEILyqblzL9pXCnr8Z+ZtWHcW6GKnreLyhP67f3FY7OsmD\n-----END PRIVATE "
    "KEY-----\n";
constexpr const char* kPublic =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA2vYMWzwSyXftOeSX8UIRQU832t9LzOEEvrmenlwGKow=\n-----END PUBLIC "
    "KEY-----\n";
constexpr const char* kOther =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA1rPDoFdknFTyuaufDR1sPwMbVdADEtq7aW4cpetDG3k=\n-----END PUBLIC "
    "KEY-----\n";

Digest number(unsigned n) {
  Sha256 hash;
  add_number(hash, n);
  return digest_of(hash);
}

Receipt made(int links, int every = 100) {
  Receipt receipt({.version = "0.1.0",
                   .kernel_revision = 1,
                   .device = "cpu",
                   .recipe = {{"seed", 0}, {"learning_rate", 0.1}, {"model", "lenet"}},
                   .train = {60000, number(1)},
                   .test = DataDigest{10000, number(2)},
                   .start = number(3)});
  for (int i = 1; i <= links; ++i) receipt.add_link(std::int64_t{i} * every, number(10u + i), 2.0 / i);
  receipt.set_subject("weights", number(4));
  receipt.set_subject("step-00000300/weights.safetensors", number(5));
  return receipt;
}

std::string error_of(const std::string& text, std::string_view key = {}) {
  try {
    parse_receipt(text, "r.json", key);
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("r.json: ")) << error.what();
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Receipt, ComesBackFromItsText) {
  const Receipt receipt = made(3);
  const SignedReceipt read = parse_receipt(receipt.json(), "r.json");
  EXPECT_EQ(read.key_id, "");
  EXPECT_EQ(read.receipt.json(), receipt.json());
  EXPECT_EQ(read.receipt.final_hash(), receipt.final_hash());
  EXPECT_EQ(read.receipt.steps(), 300);
  EXPECT_EQ(nlohmann::json::parse(receipt.json()).at("_type"), "https://in-toto.io/Statement/v1");
}

TEST(Receipt, EveryChangedLineIsFoundAndNamed) {
  const Receipt receipt = made(3);
  const std::string text = receipt.json();
  EXPECT_THAT(error_of(replaced(text, "\"learning_rate\":0.1", "\"learning_rate\":0.2")),
              HasSubstr("the first link, of step 100, does not follow from version, device, recipe, data, and start"));
  const std::pair<std::string, std::string> changes[] = {{"60000", "60001"},
                                                         {hex(number(2)), hex(number(9))},
                                                         {"\"step\":0", "\"step\":1"},
                                                         {"0.1.0", "0.1.1"},
                                                         {"\"cpu\"", "\"cuda\""}};
  for (const auto& [from, to] : changes) {
    EXPECT_THAT(error_of(replaced(text, from, to)), HasSubstr("the first link")) << from;
  }
  EXPECT_THAT(error_of(replaced(text, hex(number(12)), hex(number(99)))),
              HasSubstr("the link of step 200 does not follow from that of step 100: it was changed"));
  EXPECT_THAT(error_of(replaced(text, "[200,", "[201,")), HasSubstr("the link of step 201"));
  EXPECT_THAT(error_of(replaced(text, "[200,", "[100,")), HasSubstr("a link of step 100 after one of step 100"));
  EXPECT_THAT(error_of(replaced(text, hex(number(4)), hex(number(6)))), HasSubstr("final does not follow"));
  EXPECT_THAT(error_of(replaced(text, hex(receipt.final_hash()), hex(number(6)))), HasSubstr("final does not follow"));
  EXPECT_THAT(error_of(replaced(text, "\"subject\"", "\"note\": 1, \"subject\"")),
              HasSubstr("it has \"note\", which receipts do not have"));
  // A line less: the one behind it does not follow.
  const std::size_t begin = text.find("[200,"), end = text.find("[300,");
  EXPECT_THAT(error_of(std::string(text).erase(begin, end - begin)), HasSubstr("the link of step 300"));
}

TEST(Receipt, TenThousandLinksAreSmall) {
  const std::string text = made(10'000, 1).json();
  EXPECT_LT(text.size(), 2'000'000u);
  EXPECT_LT(sign_envelope(text, kPrivate, "key").size(), 2'000'000u);
}

TEST(Receipt, ASignatureIsCheckedWithItsKey) {
  const std::string payload = made(3).json(), text = sign_envelope(payload, kPrivate, "key.pem");
  const SignedReceipt read = parse_receipt(text, "r.json", kPublic);
  EXPECT_EQ(read.receipt.json(), payload);
  EXPECT_EQ(read.key_id.size(), 64u);
  EXPECT_THAT(error_of(text, kOther), HasSubstr("expected"));
  EXPECT_THAT(error_of(text, kOther), HasSubstr("signed with the key " + read.key_id.substr(0, 16)));
  Receipt printing = made(3);
  printing.set_subject("x\n3 of 3 steps equal", number(1));
  EXPECT_THAT(error_of(printing.json()), HasSubstr("a subject is named"));
  EXPECT_THAT(error_of(payload, kPublic), HasSubstr("has no signature, expected one of the public key"));
  // Someone changes the recipe, makes a new chain, and leaves the signature.
  Receipt::Head head = made(0).head();
  head.recipe.set("learning_rate", 0.2);
  Receipt forged(head);
  forged.set_subject("weights", number(4));
  nlohmann::json envelope = nlohmann::json::parse(text);
  envelope["payload"] = nlohmann::json::parse(sign_envelope(forged.json(), kPrivate, "key.pem"))["payload"];
  EXPECT_EQ(error_of(envelope.dump()), "");  // consistent; only the key tells
  EXPECT_THAT(error_of(envelope.dump(), kPublic), HasSubstr("was changed after it was signed"));
  EXPECT_ERROR(sign_envelope(payload, kPublic, "key.pem"), "key.pem: not a private key in PEM");
}

TEST(Receipt, ExportedFilesJoinIt) {
  TemporaryFolder folder;
  const std::filesystem::path file = folder / "receipt.json", key = folder.write("key.pem", kPrivate),
                              made_file = folder.write("net.onnx", "abc");
  std::filesystem::permissions(key, std::filesystem::perms{0644});
  EXPECT_ERROR(write_receipt(file, made(2), key), "key.pem has mode 644: other users may read or change it");
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  write_receipt(file, made(2), key);
  add_to_receipt({.file = file, .sign_key = key}, made_file);
  const Receipt receipt = read_receipt(file, folder.write("public.pem", kPublic)).receipt;
  write_receipt(folder / "foreign.json", made(2));
  EXPECT_ERROR(add_to_receipt({.file = folder / "foreign.json", .sign_key = key}, made_file), "is not signed with");
  EXPECT_ERROR(read_receipt(file, folder.write("none.pem", "")), "none.pem: is empty, expected a public key");
  EXPECT_EQ(receipt.subjects().back().name, "net.onnx");
  EXPECT_EQ(hex(receipt.subjects().back().sha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Receipt, DamagedReceiptsAreReadOrRefused) {
  const std::string plain = made(3).json(), wrapped = sign_envelope(plain, kPrivate, "key");
  constexpr std::string_view kPieces[] = {"{",    "}",    "[",          "]",       ",",
                                          ":",    "\"",   "-1",         "0",       "1e400",
                                          "null", "[[]]", "\"sha256\"", "\\u0000", "18446744073709551616",
                                          "\xc3", "=",    "A==="};
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const std::string& valid = round % 2 == 0 ? plain : wrapped;
    const std::string text = mutated(valid, dice, {.pieces = kPieces});
    if (const std::string error = error_of(text); !error.empty()) {
      ++refused;
      EXPECT_EQ(error.find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 2000);
  for (std::size_t size = 0; size + 2 < plain.size(); size += 7) EXPECT_NE(error_of(plain.substr(0, size)), "") << size;
}

TEST(DataDigest, LeavesAreOfUntransformedExamples) {
  const Tensor images = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 1, 1, 2});
  const auto labels = [](std::int64_t last) { return Tensor::from(std::vector<std::int64_t>{7, 8, last}, {3}); };
  const auto data = std::make_shared<TensorDataset>(std::vector<Tensor>{images, labels(9)});
  const std::vector<Digest> leaves = example_digests(*data);
  ASSERT_EQ(leaves.size(), 3u);
  EXPECT_EQ(leaves[1], example_digest(data->get(1)));
  const HeadDataset changed(std::make_shared<TransformedDataset>(
                                std::shared_ptr<const Dataset>(data) |
                                ImageTransform("Negative", [](const Tensor& x, RandomKey) { return 0 - x; })),
                            2);
  EXPECT_EQ(example_digests(changed), std::vector(leaves.begin(), leaves.begin() + 2));
  const TensorDataset other(std::vector<Tensor>{images, labels(10)});
  const std::vector<Digest> others = example_digests(other);
  EXPECT_EQ(others[1], leaves[1]);
  EXPECT_NE(others[2], leaves[2]);
  // SHA-256 of the bytes that docs/receipts.md lists, by Python's hashlib.
  EXPECT_EQ(hex(leaves[0]), "d5efcea0c1a746dc03bb81bf704afd08747985257a50d0c7118472c68ef8e40a");
}

}  // namespace
}  // namespace lockstep
