#include "lockstep/train/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kCastagnoli = 0x82f63b78;  // the polynomial, with its bits reversed

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[byte] = crc;
  }
  return table;
}

template <typename Word>
void append_little_endian(std::string& to, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) to += static_cast<char>(word >> (8 * i));
}

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

EventFile::EventFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  check(fd_ >= 0, "cannot create {}: {}", path_.string(), reason());
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::write(std::string_view record) {
  std::string bytes;
  bytes.reserve(record.size() + 16);
  append_little_endian(bytes, static_cast<std::uint64_t>(record.size()));
  append_little_endian(bytes, masked_crc32c(bytes));
  bytes += record;
  append_little_endian(bytes, masked_crc32c(record));
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const std::string why = reason();
      // Removes a partly written record, because a reader stops there. If this fails, the next write fails, too.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, size_);
      fail("cannot write {}: {}", path_.string(), why);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ += std::ssize(bytes);
}

}  // namespace lockstep
