#include "lockstep/data/formats/zip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50, kEnd64LocatorSignature = 0x07064b50, kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kEnd64LocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::uint64_t kMostCommentBytes = 65535;
// Deflate packs at most this many bytes into one byte.
constexpr std::uint64_t kMostPerZipByte = 1032;

template <typename T>
T little(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

class ZipReader {
 public:
  ZipReader(std::shared_ptr<const ByteSource> archive, std::string name)
      : archive_(std::move(archive)), name_(std::move(name)) {}

  std::vector<ZipEntry> read() {
    const Directory directory = find_directory();
    const std::string entries = bytes(directory.offset, directory.size, "its directory");
    std::vector<Place> places;
    std::set<std::string> names;
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < directory.count; ++i) {
      check(entries.size() - at >= kEntryBytes && little<std::uint32_t>(entries, at) == kEntrySignature,
            "{}: damaged: entry {} of {} is not in the archive's directory", name_, i + 1, directory.count);
      const std::size_t name_bytes = little<std::uint16_t>(entries, at + 28);
      const std::size_t extra_bytes = little<std::uint16_t>(entries, at + 30);
      const std::size_t comment_bytes = little<std::uint16_t>(entries, at + 32);
      const std::size_t size = kEntryBytes + name_bytes + extra_bytes + comment_bytes;
      check(entries.size() - at >= size, "{}: damaged: entry {} of {} is longer than the archive's directory", name_,
            i + 1, directory.count);
      const std::string_view entry = std::string_view(entries).substr(at, size);
      places.push_back(find_entry(entry, std::string(entry.substr(kEntryBytes, name_bytes)),
                                  entry.substr(kEntryBytes + name_bytes, extra_bytes)));
      check(names.insert(places.back().name).second, "{}: two entries have the name {}", name_,
            quoted_cell(places.back().name));
      at += size;
    }
    check_apart(places);
    std::vector<ZipEntry> all;
    for (Place& place : places) all.push_back(read_entry(std::move(place)));
    return all;
  }

 private:
  struct Directory {
    std::uint64_t offset = 0, size = 0, count = 0;
  };

  // An entry in the archive: its header and its bytes are at [begin, offset + packed).
  struct Place {
    std::string name, where;
    std::uint64_t begin = 0, offset = 0, packed = 0, size = 0;
    std::uint32_t crc = 0;
    bool deflated = false;
  };

  // Throws if entries share bytes, because a small archive could list one entry's bytes under many names to be checked.
  static void check_apart(const std::vector<Place>& places) {
    std::vector<const Place*> sorted;
    for (const Place& place : places) sorted.push_back(&place);
    std::ranges::sort(sorted, {}, &Place::begin);
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const Place& before = *sorted[i - 1];
      check(sorted[i]->begin >= before.offset + before.packed, "{}: damaged: it shares bytes with {}", sorted[i]->where,
            quoted_cell(before.name));
    }
  }

  std::string bytes(std::uint64_t offset, std::uint64_t size, std::string_view what) const {
    check(offset <= archive_->size() && size <= archive_->size() - offset,
          "{}: truncated: {} is at bytes {} to {}, the file has {}", name_, what, offset, offset + size,
          archive_->size());
    std::string out(size, '\0');
    archive_->read(offset, std::as_writable_bytes(std::span(out)));
    return out;
  }

  Directory find_directory() const {
    const std::uint64_t size = archive_->size();
    const std::uint64_t tail_bytes = std::min<std::uint64_t>(size, kEndBytes + kMostCommentBytes);
    const std::string tail = bytes(size - tail_bytes, tail_bytes, "its end");
    std::optional<std::size_t> found;
    for (std::size_t at = tail.size() >= kEndBytes ? tail.size() - kEndBytes + 1 : 0; at-- > 0 && !found;) {
      if (little<std::uint32_t>(tail, at) == kEndSignature &&
          at + kEndBytes + little<std::uint16_t>(tail, at + 20) == tail.size())
        found = at;
    }
    check(found.has_value(), "{}: not a zip archive, or truncated: it has no directory at its end", name_);
    Directory directory{little<std::uint32_t>(tail, *found + 16), little<std::uint32_t>(tail, *found + 12),
                        little<std::uint16_t>(tail, *found + 10)};
    const std::uint64_t end = size - tail_bytes + *found;
    if (directory.offset != UINT32_MAX && directory.size != UINT32_MAX && directory.count != UINT16_MAX)
      return directory;
    if (end < kEnd64LocatorBytes) return directory;
    const std::string locator = bytes(end - kEnd64LocatorBytes, kEnd64LocatorBytes, "its end");
    if (little<std::uint32_t>(locator, 0) != kEnd64LocatorSignature) return directory;
    const std::string end64 = bytes(little<std::uint64_t>(locator, 8), kEnd64Bytes, "its end");
    check(little<std::uint32_t>(end64, 0) == kEnd64Signature, "{}: damaged: no 64-bit directory where its end says",
          name_);
    return {little<std::uint64_t>(end64, 48), little<std::uint64_t>(end64, 40), little<std::uint64_t>(end64, 32)};
  }

  Place find_entry(std::string_view entry, std::string name, std::string_view extra) const {
    std::string where = fmt::format("{}: {}", name_, quoted_cell(name));
    const auto flags = little<std::uint16_t>(entry, 8);
    const auto method = little<std::uint16_t>(entry, 10);
    const auto crc = little<std::uint32_t>(entry, 16);
    std::uint64_t packed = little<std::uint32_t>(entry, 20), size = little<std::uint32_t>(entry, 24);
    std::uint64_t local = little<std::uint32_t>(entry, 42);
    read_64_bit_fields(extra, where, size, packed, local);
    check((flags & 1) == 0, "{}: encrypted", where);
    check(method == 0 || method == 8, "{}: compressed by method {}, expected none (0) or deflate (8)", where, method);
    const std::string head = bytes(local, kLocalBytes, where);
    check(little<std::uint32_t>(head, 0) == kLocalSignature, "{}: damaged: no entry where the directory says", where);
    const std::uint64_t offset =
        local + kLocalBytes + little<std::uint16_t>(head, 26) + little<std::uint16_t>(head, 28);
    check(offset <= archive_->size() && packed <= archive_->size() - offset,
          "{}: truncated: {} bytes from byte {}, the file has {}", where, packed, offset, archive_->size());
    check(method != 0 || packed == size, "{}: damaged: {} bytes are stored, {} expected", where, packed, size);
    return {std::move(name), std::move(where), local, offset, packed, size, crc, method != 0};
  }

  ZipEntry read_entry(Place place) {
    ZipEntry made{std::move(place.name), archive_, place.offset, place.size};
    if (place.deflated) {
      made.source = bytes_in_memory(inflate_entry(place.offset, place.packed, place.size, place.where));
      made.offset = 0;
    }
    check(place.crc == checksum(made), "{}: damaged: its checksum is wrong", place.where);
    return made;
  }

  // A 32-bit field that is too small for its number is all ones; extra field 1 then has the number.
  void read_64_bit_fields(std::string_view extra, const std::string& where, std::uint64_t& size, std::uint64_t& packed,
                          std::uint64_t& local) const {
    while (extra.size() >= 4) {
      const auto id = little<std::uint16_t>(extra, 0);
      const std::size_t field_bytes = little<std::uint16_t>(extra, 2);
      check(extra.size() - 4 >= field_bytes, "{}: damaged: an extra field is too long", where);
      std::string_view field = extra.substr(4, field_bytes);
      extra.remove_prefix(4 + field_bytes);
      if (id != 1) continue;
      for (std::uint64_t* const number : {&size, &packed, &local}) {
        if (*number != UINT32_MAX) continue;
        check(field.size() >= 8, "{}: damaged: its 64-bit fields are too short", where);
        *number = little<std::uint64_t>(field, 0);
        field.remove_prefix(8);
      }
    }
  }

  std::string inflate_entry(std::uint64_t offset, std::uint64_t packed, std::uint64_t size, const std::string& where) {
    check(size / kMostPerZipByte <= packed, "{}: damaged: {} bytes cannot unpack to {}", where, packed, size);
    unpacked_ += size;  // each at most 1032 times its part of the archive
    check_file_memory(unpacked_, archive_->size(), where, fmt::format("unpacks to {} bytes", size),
                      "numpy.savez() writes arrays that are not packed");
    std::string out(size, '\0');
    z_stream_s stream{};
    check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "{}: cannot start zlib", where);
    const std::unique_ptr<z_stream_s, int (*)(z_stream_s*)> ends(&stream, inflateEnd);
    std::vector<std::byte> input(std::min<std::uint64_t>(packed, 1 << 20));
    std::size_t written = 0;
    int result = Z_OK;
    while (result == Z_OK && packed > 0) {
      const std::size_t piece = std::min<std::uint64_t>(packed, input.size());
      archive_->read(offset, std::span(input).first(piece));
      offset += piece;
      packed -= piece;
      stream.next_in = reinterpret_cast<Bytef*>(input.data());
      stream.avail_in = static_cast<uInt>(piece);
      while (result == Z_OK) {
        // Room for one extra byte after the expected ones shows whether the entry is too long.
        Bytef extra = 0;
        const std::size_t room = std::min<std::size_t>(out.size() - written, std::size_t{1} << 30);
        stream.next_out = room > 0 ? reinterpret_cast<Bytef*>(out.data() + written) : &extra;
        stream.avail_out = room > 0 ? static_cast<uInt>(room) : 1;
        const uInt before = stream.avail_out;
        result = inflate(&stream, Z_NO_FLUSH);
        const uInt got = before - stream.avail_out;
        if (room == 0 && got > 0) result = Z_DATA_ERROR;
        if (room > 0) written += got;
        if (result == Z_BUF_ERROR) {
          result = Z_OK;
          break;
        }
        if (stream.avail_in == 0 && stream.avail_out > 0) break;
      }
    }
    check(result == Z_STREAM_END && written == out.size(), "{}: damaged: {} of {} bytes unpack", where, written,
          out.size());
    return out;
  }

  static std::uint32_t checksum(const ZipEntry& entry) {
    uLong crc = crc32(0, nullptr, 0);
    std::vector<std::byte> buffer(std::min<std::uint64_t>(entry.size, 1 << 20));
    for (std::uint64_t at = 0; at < entry.size;) {
      const std::size_t piece = std::min<std::uint64_t>(entry.size - at, buffer.size());
      entry.source->read(entry.offset + at, std::span(buffer).first(piece));
      crc = crc32(crc, reinterpret_cast<const Bytef*>(buffer.data()), static_cast<uInt>(piece));
      at += piece;
    }
    return static_cast<std::uint32_t>(crc);
  }

  std::shared_ptr<const ByteSource> archive_;
  std::string name_;
  std::uint64_t unpacked_ = 0;  // of all entries
};

}  // namespace

std::vector<ZipEntry> read_zip(const std::shared_ptr<const ByteSource>& archive, const std::string& name) {
  return ZipReader(archive, name).read();
}

}  // namespace lockstep
