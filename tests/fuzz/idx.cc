#include "lockstep/data/formats/idx.h"

#include <sstream>

#include "tests/data/idx_files.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

Reader idx() {
  const std::string pictures = idx_header({2, 3, 2}) + std::string(12, 'a'), labels = idx_header({2}) + "\1\2";
  return {.read =
              [](const std::string& bytes) {
                std::istringstream stream(bytes);
                read_idx(stream, "fuzz");
              },
          .seeds = {pictures, labels, gzip(pictures), gzip(labels)},
          .words = {std::string_view("\0\0\x08\x03", 4), std::string_view("\0\0\x08\x01", 4), "\x1f\x8b\x08",
                    "\xff\xff\xff\xff"},
          .repair =
              [](std::string& bytes) {
                if (!bytes.starts_with("\x1f\x8b")) bytes = gzip(bytes);
              },
          .memory_per_byte = 3 * 1032};  // what deflate packs, and copies
}

}  // namespace lockstep::fuzz
