#include "lockstep/data/formats/npy.h"

#include <zlib.h>

#include <cstring>

#include "tests/data/npy_writing.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

const std::vector<std::string_view> kNpyWords{"'descr'",
                                              "'fortran_order'",
                                              "'shape'",
                                              "True",
                                              "False",
                                              "'<f8'",
                                              "'>f8'",
                                              "'|O'",
                                              "'|b1'",
                                              "'<i4'",
                                              "(",
                                              ")",
                                              ",",
                                              "{",
                                              "}",
                                              "L",
                                              "(0,)",
                                              "(18446744073709551615,)",
                                              "(4611686018427387904, 2)",
                                              "\x93NUMPY\x02"};

std::string unpacked(std::string_view bytes) {
  z_stream z{};
  std::string out(1 << 16, '\0');
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return {};
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  inflate(&z, Z_FINISH);
  out.resize(z.total_out);
  inflateEnd(&z);
  return out;
}

// The checksums and unpacked sizes in the directory of an archive.
void repair_zip(std::string& bytes) {
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint32_t value = 0;
    std::memcpy(&value, &bytes[at], size);
    return value;
  };
  for (std::size_t at = 0; (at = bytes.find("PK\x01\x02", at)) != bytes.npos && bytes.size() - at >= 46; at += 4) {
    const std::size_t local = number(at + 42, 4);
    if (local > bytes.size() || bytes.size() - local < 30) continue;
    const std::size_t data = local + 30 + number(local + 26, 2) + number(local + 28, 2);
    if (data > bytes.size()) continue;
    const std::string_view packed = std::string_view(bytes).substr(data, number(at + 20, 4));
    const std::string plain = number(at + 10, 2) == 8 ? unpacked(packed) : std::string(packed);
    const auto checksum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(plain.data()), static_cast<uInt>(plain.size())));
    const auto size = static_cast<std::uint32_t>(plain.size());
    std::memcpy(&bytes[at + 16], &checksum, 4);
    std::memcpy(&bytes[at + 24], &size, 4);
  }
}

std::vector<std::string> npy_files() {
  return {lockstep::npy("<f4", "(2, 3)", std::string(24, 'a')),
          lockstep::npy(">i2", "(2, 3, 2)", std::string(24, 'b'), true),
          lockstep::npy("|b1", "(4,)", std::string(4, '\1'), false, 2)};
}

}  // namespace

Reader npy() {
  return {.read = [](const std::string& bytes) { read_rows(parse_npy(bytes, "fuzz")); },
          .seeds = npy_files(),
          .words = kNpyWords,
          .repair =
              [](std::string& bytes) {
                const std::size_t end = bytes.find('}');
                if (bytes.size() < 12 || end == bytes.npos || end < 10 || end > 60'000) return;
                const auto header = static_cast<std::uint16_t>(end + 1 - 10);
                std::memcpy(&bytes[8], &header, sizeof header);
              }};
}

Reader npz() {
  const std::vector<std::string> files = npy_files();
  std::vector<std::string_view> words{"PK\x01\x02", "PK\x03\x04",       "PK\x05\x06", "PK\x06\x06",
                                      "PK\x06\x07", "\xff\xff\xff\xff", ".npy",       std::string_view("\0\0", 2),
                                      "\x08"};
  words.insert(words.end(), kNpyWords.begin(), kNpyWords.end());
  const std::vector<std::pair<std::string, std::string>> entries{{"x.npy", files[0]}, {"y.npy", files[1]}};
  return {.read =
              [](const std::string& bytes) {
                for (const auto& [name, array] : parse_npz(bytes, "fuzz")) read_rows(array);
              },
          .seeds = {zip(entries, true), zip(entries, false), zip({entries[0]}, true)},
          .words = words,
          .repair = repair_zip,
          .memory_per_byte = 3 * 1032};  // what deflate packs, and copies
}

}  // namespace lockstep::fuzz
