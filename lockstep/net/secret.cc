#include "lockstep/net/secret.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <set>
#include <system_error>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/hmac.h"
#include "lockstep/base/private_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kShortest = 16, kLongest = 4096;
// A secret of 16 random decimal digits has fewer than five different ones with a probability of about 1 in 10,000.
constexpr std::size_t kFewestDifferent = 5;

// Whether the whole text repeats its first `period` characters.
bool repeats(std::string_view text, std::size_t period) {
  return text.substr(period) == text.substr(0, text.size() - period);
}

// Returns a reason why the secret is easy to guess; empty if none is found. The reason must not reveal the secret.
std::string why_weak(std::string_view secret) {
  const std::size_t different = std::set<char>(secret.begin(), secret.end()).size();
  if (different < kFewestDifferent) {
    return fmt::format("few different characters ({}, expected at least {})", different, kFewestDifferent);
  }
  for (std::size_t period = 1; period < kShortest && 2 * period <= secret.size(); ++period) {
    if (repeats(secret, period))
      return fmt::format("a text of {} characters that repeats (expected {})", period, kShortest);
  }
  return {};
}

std::string read_secret_file(const std::string& path) {
  // Opens the file once, so that the check and the read see the same file. O_NONBLOCK: opening a pipe must not block.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  const bool known = file && ::fstat(file.get(), &status) == 0;
  check(known, "LOCKSTEP_SECRET_FILE: cannot read {}: {}", path, std::generic_category().message(errno));
  check(S_ISREG(status.st_mode), "LOCKSTEP_SECRET_FILE: {} is not a regular file", path);
  check_private(path, status, "LOCKSTEP_SECRET_FILE");
  std::array<char, kLongest + 1> text;
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  check(size >= 0, "LOCKSTEP_SECRET_FILE: cannot read {}: {}", path, std::generic_category().message(errno));
  std::string secret(text.data(), static_cast<std::size_t>(size));
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  return secret;
}

}  // namespace

std::string read_secret() {
  const auto value = environment("LOCKSTEP_SECRET"), path = environment("LOCKSTEP_SECRET_FILE");
  check(!value || !path, "LOCKSTEP_SECRET and LOCKSTEP_SECRET_FILE are both set, expected one of them");
  if (!value && !path) return {};
  const std::string secret = value ? *value : read_secret_file(*path);
  const char* const source = value ? "LOCKSTEP_SECRET" : "LOCKSTEP_SECRET_FILE";
  check(secret.size() >= kShortest && secret.size() <= kLongest,
        "the secret in {} has {} characters, expected from {} to {}", source, secret.size(), kShortest, kLongest);
  const std::string weak = why_weak(secret);
  check(weak.empty(), "the secret in {} is easy to guess: {}; make a random one: openssl rand -hex 32", source, weak);
  return secret;
}

std::string make_secret() { return hexadecimal(random_bytes(32)); }

}  // namespace lockstep
