// A rank tells the others its next operation by a header: ranks that do different things are named, not waited for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/comm/process_group.h"

namespace lockstep {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  send,
  receive,
  barrier,
  tree_reduce,
  make_tree_reducer,
  subgroup,
};

// Travels as it lies in memory, without padding; two that agree are equal byte for byte.
struct CollectiveHeader {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t unused = 0;
  std::int32_t root = -1;    // or the other rank, of send and receive
  std::uint64_t count = 0;   // elements of each part
  std::uint64_t detail = 0;  // a tag, or a hash of further arguments
  char label[96] = {};       // cut off where it is longer

  void set_label(std::string_view text);
};

bool operator==(const CollectiveHeader& a, const CollectiveHeader& b);

// "all-reduce of bucket 3, step 17"; without a label, "all-reduce of 8 f32".
std::string describe(const CollectiveHeader& header);
// With all that ranks have to agree on: `all-reduce (sum) of 8 f32 "bucket 3, step 17"`.
std::string describe_fully(const CollectiveHeader& header);

}  // namespace lockstep
