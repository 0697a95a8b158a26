// Internal: the entries of a zip archive (PKWARE's APPNOTE 6.3), with the 64-bit fields of large archives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/formats/byte_source.h"

namespace lockstep {

struct ZipEntry {
  std::string name;
  // Unpacked bytes: `size` bytes from `offset` of `source`, which is the archive itself for a stored entry.
  std::shared_ptr<const ByteSource> source;
  std::uint64_t offset = 0, size = 0;
};

// Reads all entries; compressed entries are unpacked in memory, as far as check_file_memory() allows. Throws an Error
// that names the archive and the entry for damaged or encrypted entries, entries that share bytes, compression methods
// other than deflate, and wrong checksums.
std::vector<ZipEntry> read_zip(const std::shared_ptr<const ByteSource>& archive, const std::string& name);

}  // namespace lockstep
