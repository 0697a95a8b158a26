// Which GPUs the ranks of a job have, and whether NCCL can move data between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/device/device.h"

namespace lockstep {

// What a rank tells the others, as it lies in memory. Texts end with a zero.
struct RankGpu {
  char backend[8] = {};   // ProcessGroup::backend()
  char uuid[40] = {};     // "": it has no GPU
  std::int32_t nccl = 0;  // NcclInfo::version
  std::int32_t may_share = 0;
};

// Of this rank. NCCL is looked for where it is wanted. NCCL refuses a GPU that belongs to two ranks of one host; with
// LOCKSTEP_NCCL_SHARE_GPU=1 it is asked nevertheless, for tests in which each rank has an NCCL_HOSTID of its own.
RankGpu describe_gpu(Device device, std::string_view backend);

// "" where NCCL can be used, else why not: "ranks 0 and 1 have the same GPU". Throws where ranks asked for different back
// ends.
std::string why_not_nccl(std::span<const RankGpu> ranks);

}  // namespace lockstep
