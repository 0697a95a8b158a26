#include "lockstep/data/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codec.h"

namespace lockstep {
namespace {

// The length of the UTF-8 character at the start of the text, or 0 if there is none (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool valid = (first != 0xe0 || second >= 0xa0) && (first != 0xed || second < 0xa0);
    return valid && continues(1) && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool valid = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
    return valid && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

[[noreturn]] void fail_to_read(std::string_view name) {
  fail("cannot read {}: {}", name, std::generic_category().message(errno));
}

}  // namespace

std::string printable_name(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    const auto first = static_cast<unsigned char>(name[0]);
    if (length == 0 || first < 32 || first == 127) {
      text += fmt::format("\\x{:02x}", first);
      name.remove_prefix(1);
    } else {
      text += name.substr(0, length);
      name.remove_prefix(length);
    }
  }
  return text;
}

ImageFile::ImageFile(const std::filesystem::path& path)
    : name_(printable_name(path.native())),
      // A pipe must not make this wait.
      file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) fail_to_read(name_);
  check(S_ISREG(status.st_mode), "cannot read {}: it is not a regular file", name_);
  size_ = static_cast<std::size_t>(status.st_size);
}

std::string ImageFile::read(std::size_t most) const {
  std::string bytes(std::min(most, size_), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::pread(file_.get(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(name_);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

ImageInfo ImageFile::probe() const {
  // A camera's header holds a small picture, up to 64 KB for each segment.
  constexpr std::size_t kMost = std::size_t{1} << 24;
  for (std::size_t most = 4096;; most *= 16) {
    const std::string bytes = read(most);
    if (most >= size_ || most >= kMost || !bytes.starts_with("\xff\xd8")) return probe_image_bytes(bytes, name_);
    try {
      return probe_image_bytes(bytes, name_);
    } catch (const Error&) {  // again, with more bytes
    }
  }
}

Tensor ImageFile::decode(const ImageOptions& options) const {
  // No picture within max_pixels needs more, whatever its metadata.
  constexpr std::size_t kMostBytes = std::size_t{4} << 30;
  check(size_ <= kMostBytes, "{}: {} bytes, expected at most {} of a picture", name_, size_, kMostBytes);
  return decode_image(read(size_), options, name_);
}

}  // namespace lockstep
