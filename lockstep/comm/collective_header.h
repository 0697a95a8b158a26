// Internal: the header with which a rank announces its next operation. Ranks that disagree get an error instead of a
// hang.
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

// Sent as its bytes in memory, which have no padding. Equal headers are equal byte for byte.
struct CollectiveHeader {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t unused = 0;
  std::int32_t root = -1;    // the other rank for send and receive
  std::uint64_t count = 0;   // elements of each part
  std::uint64_t detail = 0;  // a tag, or a hash of further arguments
  char label[96] = {};       // truncated if longer

  void set_label(std::string_view text);
};

bool operator==(const CollectiveHeader& a, const CollectiveHeader& b);

// "all-reduce of bucket 3, step 17"; without a label, "all-reduce of 8 f32".
std::string describe(const CollectiveHeader& header);
// Includes everything that ranks must agree on: `all-reduce (sum) of 8 f32 "bucket 3, step 17"`.
std::string describe_fully(const CollectiveHeader& header);

}  // namespace lockstep
