#include "lockstep/data/formats/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image_codec.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_to_read(std::string_view name) {
  fail("cannot read {}: {}", name, std::generic_category().message(errno));
}

}  // namespace

ImageFile::ImageFile(const std::filesystem::path& path)
    : name_(printable_name(path.native())),
      // Opening a pipe must not block.
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
  // A camera's header may hold a small picture, up to 64 KB in each segment.
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
  // More than any picture within max_pixels needs, whatever its metadata.
  constexpr std::size_t kMostBytes = std::size_t{4} << 30;
  check(size_ <= kMostBytes, "{}: {} bytes, expected at most {} of a picture", name_, size_, kMostBytes);
  check_file_memory(size_, size_, name_, "the file");
  return decode_image(read(size_), options, name_);
}

}  // namespace lockstep
