#include "lockstep/receipt/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/base/private_file.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/receipt/digest.h"
#include "lockstep/receipt/envelope.h"

namespace lockstep {
namespace {

// Keeps the order of a recipe.
using Json = nlohmann::ordered_json;

constexpr std::string_view kStatementType = "https://in-toto.io/Statement/v1";
constexpr std::string_view kPredicateType = "urn:lockstep:training-receipt:v1";
constexpr std::size_t kMostReceiptBytes = std::size_t{1} << 28, kMostKeyBytes = 1 << 16;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;  // what every JSON reader keeps exactly
constexpr std::size_t kShown = 16;                          // digits of a link's hash

std::string data_text(const DataDigest& data) { return fmt::format("{} {}", data.examples, hex(data.root)); }

Digest first_hash(const Receipt::Head& head) {
  const std::string text =
      fmt::format("lockstep receipt 1\nversion {}\nkernels {}\ndevice {}\nrecipe {}\ntrain {}\ntest {}\nstart {} {}\n",
                  head.version, head.kernel_revision, head.device, recipe_hash(head.recipe), data_text(head.train),
                  head.test ? data_text(*head.test) : "none", head.start_step, hex(head.start));
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return digest_of(hash);
}

Digest next_hash(const Digest& before, const ReceiptLink& link) {
  Sha256 hash;
  hash.update(before);
  add_number(hash, static_cast<std::uint64_t>(link.step));
  hash.update(link.state);
  add_number(hash, std::bit_cast<std::uint64_t>(link.loss));
  return digest_of(hash);
}

// Functions that read a receipt. The caller adds the name of the file to their errors.

// Throws unless the object has the required names and no others, except maybe `optional`.
void check_names(const Json& object, const char* what, std::initializer_list<const char*> required,
                 const char* optional = nullptr) {
  check(object.is_object(), "{} is {}, expected an object", what, excerpt(object));
  for (const char* name : required) check(object.contains(name), "{} has no {}", what, name);
  for (const auto& member : object.items()) {
    const std::string& name = member.key();
    const bool known = std::ranges::any_of(required, [&](const char* other) { return name == other; });
    check(known || (optional && name == optional), "{} has {}, which receipts do not have", what, excerpt(name));
  }
}

const std::string& text_in(const Json& value, const char* what) {
  check(value.is_string(), "{} is {}, expected a text", what, excerpt(value));
  return value.get_ref<const std::string&>();
}

std::int64_t count_in(const Json& value, const char* what) {
  check(value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostSteps, "{} is {}, expected a count", what,
        excerpt(value));
  return value.get<std::int64_t>();
}

Digest digest_in(const Json& value, const char* what) {
  const auto digest = parse_digest(text_in(value, what));
  check(digest.has_value(), "{} is {}, expected 64 hexadecimal digits", what, excerpt(value));
  return *digest;
}

DataDigest data_in(const Json& value, const char* what) {
  check_names(value, what, {"examples", "root"});
  return {count_in(value.at("examples"), what), digest_in(value.at("root"), what)};
}

// A word of the head's text.
std::string word_in(const Json& value, const char* what) {
  const std::string& word = text_in(value, what);
  check(!word.empty() && word.size() <= 64 && std::ranges::all_of(word, [](char c) { return c > ' ' && c <= '~'; }),
        "{} is {}, expected a word", what, excerpt(value));
  return word;
}

double loss_in(const Json& value) {
  const std::string& digits = text_in(value, "a loss");
  check(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos,
        "a loss is {}, expected the 16 hexadecimal digits of its bits", excerpt(value));
  return std::bit_cast<double>(static_cast<std::uint64_t>(std::stoull(digits, nullptr, 16)));
}

Json as_json(const DataDigest& data) { return {{"examples", data.examples}, {"root", hex(data.root)}}; }

Receipt receipt_from(const Json& statement) {
  check_names(statement, "it", {"_type", "subject", "predicateType", "predicate"});
  check(statement.at("_type") == kStatementType, "_type is {}, expected {}", excerpt(statement.at("_type")),
        kStatementType);
  check(statement.at("predicateType") == kPredicateType, "predicateType is {}, expected {}",
        excerpt(statement.at("predicateType")), kPredicateType);
  const Json& p = statement.at("predicate");
  check_names(p, "predicate", {"lockstep", "kernelRevision", "device", "recipe", "data", "start", "links", "final"});
  const Json &data = p.at("data"), &start = p.at("start");
  check_names(data, "data", {"train"}, "test");
  check_names(start, "start", {"step", "state"});
  Receipt::Head head{.version = word_in(p.at("lockstep"), "lockstep"),
                     .kernel_revision = count_in(p.at("kernelRevision"), "kernelRevision"),
                     .device = word_in(p.at("device"), "device"),
                     .recipe = Recipe::from_json(p.at("recipe").dump()),
                     .train = data_in(data.at("train"), "train"),
                     .start_step = count_in(start.at("step"), "step"),
                     .start = digest_in(start.at("state"), "state")};
  if (data.contains("test")) head.test = data_in(data.at("test"), "test");
  Receipt receipt(std::move(head));
  check(p.at("links").is_array(), "links is {}, expected a list", excerpt(p.at("links")));
  for (const Json& line : p.at("links")) {
    check(line.is_array() && line.size() == 4, "a link is {}, expected [step, loss, state, hash]", excerpt(line));
    const std::int64_t before = receipt.steps(), step = count_in(line[0], "a step");
    const bool first = receipt.links().empty();
    receipt.add_link(step, digest_in(line[2], "a state"), loss_in(line[1]));
    if (text_in(line[3], "a hash") == hex(receipt.links().back().hash).substr(0, kShown)) continue;
    if (first) {
      fail(
          "the first link, of step {}, does not follow from version, device, recipe, data, and start: one of these, "
          "or the link, was changed",
          step);
    }
    fail("the link of step {} does not follow from that of step {}: it was changed", step, before);
  }
  const Json& subjects = statement.at("subject");
  check(subjects.is_array() && !subjects.empty(), "subject is {}, expected a list", excerpt(subjects));
  std::set<std::string> names;
  for (const Json& subject : subjects) {
    check_names(subject, "a subject", {"name", "digest"});
    check_names(subject.at("digest"), "a digest", {"sha256"});
    const std::string& name = text_in(subject.at("name"), "a name");
    // Names are printed, so they must not have control characters.
    check(!name.empty() && name.size() <= 4096 &&
              std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; }),
          "a subject is named {}, expected a file's name", excerpt(subject.at("name")));
    check(names.insert(name).second, "two subjects are named {}", excerpt(name));
    receipt.set_subject(name, digest_in(subject.at("digest").at("sha256"), "a digest"));
  }
  check(digest_in(p.at("final"), "final") == receipt.final_hash(),
        "final does not follow from the last link and the subjects: one of these was changed");
  return receipt;
}

}  // namespace

Receipt::Receipt(Head head) : head_(std::move(head)), begin_(first_hash(head_)) {}

void Receipt::add_link(std::int64_t step, const Digest& state, double loss) {
  check(step > steps(), "a link of step {} after one of step {}", step, steps());
  check(std::isfinite(loss), "the loss of step {} is not finite", step);
  links_.push_back({step, state, loss});
  links_.back().hash = next_hash(links_.size() == 1 ? begin_ : links_[links_.size() - 2].hash, links_.back());
}

void Receipt::cut_back(std::int64_t step) {
  std::erase_if(links_, [&](const ReceiptLink& link) { return link.step > step; });
  subjects_.clear();
}

void Receipt::set_subject(const std::string& name, const Digest& sha256) {
  const auto found = std::ranges::find(subjects_, name, &ReceiptSubject::name);
  if (found == subjects_.end()) {
    subjects_.push_back({name, sha256});
  } else {
    found->sha256 = sha256;
  }
}

void Receipt::remove_subject(const std::string& name) {
  std::erase_if(subjects_, [&](const ReceiptSubject& subject) { return subject.name == name; });
}

Digest Receipt::final_hash() const {
  Sha256 hash;
  hash.update(links_.empty() ? begin_ : links_.back().hash);
  for (const ReceiptSubject& subject : subjects_) {
    add_text(hash, subject.name);
    hash.update(subject.sha256);
  }
  return digest_of(hash);
}

std::string Receipt::json() const {
  std::string subjects, links;
  for (const ReceiptSubject& subject : subjects_) {
    const Json line = {{"name", subject.name}, {"digest", {{"sha256", hex(subject.sha256)}}}};
    subjects += fmt::format("{}\n{}", subjects.empty() ? "" : ",", line.dump());
  }
  for (const ReceiptLink& link : links_) {
    links += fmt::format("{}\n[{}, \"{:016x}\", \"{}\", \"{}\"]", links.empty() ? "" : ",", link.step,
                         std::bit_cast<std::uint64_t>(link.loss), hex(link.state), hex(link.hash).substr(0, kShown));
  }
  Json data = {{"train", as_json(head_.train)}};
  if (head_.test) data["test"] = as_json(*head_.test);
  const Json start = {{"step", head_.start_step}, {"state", hex(head_.start)}};
  return fmt::format(
      "{{\n\"_type\": \"{}\",\n\"subject\": [{}],\n\"predicateType\": \"{}\",\n\"predicate\": {{\n\"lockstep\": "
      "\"{}\",\n\"kernelRevision\": {},\n\"device\": \"{}\",\n\"recipe\": {},\n\"data\": {},\n\"start\": "
      "{},\n\"links\": "
      "[{}],\n\"final\": \"{}\"\n}}\n}}\n",
      kStatementType, subjects, kPredicateType, head_.version, head_.kernel_revision, head_.device, head_.recipe.json(),
      data.dump(), start.dump(), links, hex(final_hash()));
}

Receipt Receipt::from_json(std::string_view text, std::string_view origin) {
  try {
    return receipt_from(parse_json<Json>(text, {.what = "it", .depth = 6, .names = 1000}));
  } catch (const Json::exception& error) {
    fail("{}: not a receipt: {}", origin, excerpt(nlohmann::json(error.what())));
  } catch (const Error& error) {
    fail("{}: not a receipt: {}", origin, error.what());
  }
}

SignedReceipt parse_receipt(std::string_view text, std::string_view origin, std::string_view public_key) {
  // Only an envelope has a payload; the parsers below report all errors of either form.
  bool is_signed = false;
  try {
    parse_json<Json>(text, {.what = fmt::format("{}: it", origin), .depth = 8, .names = 1000},
                     [&](const std::string& name, const Json&) { is_signed = is_signed || name == "payload"; });
  } catch (const Json::exception&) {
  }
  if (is_signed) {
    const OpenedEnvelope opened = open_envelope(text, origin, public_key);
    return {Receipt::from_json(opened.payload, origin), opened.key_id};
  }
  Receipt receipt = Receipt::from_json(text, origin);
  check(public_key.empty(), "{}: has no signature, expected one of the public key", origin);
  return {std::move(receipt)};
}

SignedReceipt read_receipt(const std::filesystem::path& file, const std::filesystem::path& public_key) {
  std::string key;
  if (!public_key.empty()) {
    key = read_file(public_key, kMostKeyBytes);
    check(!key.empty(), "{}: is empty, expected a public key in PEM", public_key.string());
  }
  return parse_receipt(read_file(file, kMostReceiptBytes), file.string(), key);
}

std::string receipt_text(const Receipt& receipt, const std::filesystem::path& sign_key) {
  if (sign_key.empty()) return receipt.json();
  return sign_envelope(receipt.json(), read_private_file(sign_key, kMostKeyBytes, "sign_key"), sign_key.string());
}

void write_receipt(const std::filesystem::path& file, const Receipt& receipt, const std::filesystem::path& sign_key) {
  write_file_atomically(file, receipt_text(receipt, sign_key));
}

bool is_signed_with(const std::filesystem::path& file, const Receipt& receipt, const std::filesystem::path& sign_key) {
  // Ed25519 is deterministic: a key has one signature for a text.
  return read_file(file, kMostReceiptBytes) == receipt_text(receipt, sign_key);
}

void add_to_receipt(const ReceiptOptions& options, const std::filesystem::path& made) {
  Receipt receipt = read_receipt(options.file).receipt;
  check(options.sign_key.empty() || is_signed_with(options.file, receipt, options.sign_key),
        "{}: is not signed with {}, expected the receipt of this run", options.file.string(),
        options.sign_key.string());
  receipt.set_subject(made.filename().string(), file_digest(made));
  write_receipt(options.file, receipt, options.sign_key);
}

}  // namespace lockstep
