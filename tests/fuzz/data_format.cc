#include "lockstep/task/data_source.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// What a file is, from its first bytes.
Reader data_format() {
  return {.read = [](const std::string& bytes) { detect_format(write_in_scratch("unknown", bytes)); },
          .seeds = {"x,y\n1,2\n3,4\n", "a text\nof two lines\n", "PK\x03\x04"},
          .words = {"\x93NUMPY", "PK\x05\x06", "\xff\xd8\xff", "\x89PNG", "GIF8", "\x1f\x8b", "%PDF", "PAR1",
                    "\x80\x02", std::string_view("\0\0\x08", 3), ",", "\n", "\"", "1"},
          .memory_per_byte = 100};
}

}  // namespace lockstep::fuzz
