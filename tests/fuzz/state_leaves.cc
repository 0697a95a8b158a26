#include <array>

#include "lockstep/receipt/leaf_files.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// The leaves of states beside a receipt, as it is read and as it is continued.
Reader state_leaves() {
  const std::string file = file_in_scratch("receipt.state.leaves");
  const std::array<Digest, 3> leaves{};
  StateLeaves writer(file, 0);
  writer.add(1, leaves);
  writer.add(5, leaves);
  return {.read =
              [file](const std::string& bytes) {
                write_in_scratch("receipt.state.leaves", bytes);
                read_state_leaves(file, 1, Digest{});
                StateLeaves(file, 5);
              },
          .seeds = {read_from_scratch("receipt.state.leaves")},
          .words = {std::string_view("\x01\0\0\0\0\0\0\0", 8), std::string_view("\xff\xff\xff\0\0\0\0\0", 8)},
          .throws = false};
}

}  // namespace lockstep::fuzz
