#include "lockstep/data/formats/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

constexpr std::uintmax_t kMostAtOnce = std::uintmax_t{64} << 20;

class MemoryBytes : public ByteSource {
 public:
  MemoryBytes(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    check(offset <= size() && out.size() <= size() - offset, "read: bytes {} to {} of {}", offset, offset + out.size(),
          size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  const std::byte* in_memory() const override { return bytes_.data(); }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

class FileBytes : public ByteSource {
 public:
  FileBytes(FileDescriptor file, std::uint64_t size, std::string name)
      : file_(std::move(file)), size_(size), name_(std::move(name)) {}
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, "cannot read {}: {}", name_, std::generic_category().message(errno));
      check(got > 0, "{}: ends at byte {}, and had {} bytes before: the file was changed while it was used", name_,
            offset, size_);
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  FileDescriptor file_;
  std::uint64_t size_;
  std::string name_;
};

}  // namespace

std::shared_ptr<const ByteSource> bytes_in_memory(std::string bytes) {
  return bytes_in_memory(std::make_shared<const std::string>(std::move(bytes)));
}

std::shared_ptr<const ByteSource> bytes_in_memory(std::vector<std::uint8_t> bytes) {
  const auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  return std::make_shared<MemoryBytes>(owner, std::as_bytes(std::span(*owner)));
}

std::shared_ptr<const ByteSource> bytes_in_memory(std::shared_ptr<const std::string> bytes) {
  const auto all = std::as_bytes(std::span(*bytes));
  return std::make_shared<MemoryBytes>(std::move(bytes), all);
}

std::shared_ptr<const ByteSource> open_bytes(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  // read_file() throws, with the reason, if the path is not a regular file.
  if (error || size <= kMostAtOnce) return bytes_in_memory(read_file(path, kMostAtOnce));
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(static_cast<bool>(file), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  return std::make_shared<FileBytes>(std::move(file), size, path.string());
}

}  // namespace lockstep
