// Internal: the GPUs of a job's ranks, and whether NCCL can move data between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/device/device.h"

namespace lockstep {

// The message of one rank to the others, as it lies in memory. Strings end with a zero byte.
struct RankGpu {
  char backend[8] = {};   // ProcessGroup::backend()
  char uuid[40] = {};     // "": no GPU
  std::int32_t nccl = 0;  // NcclInfo::version
  std::int32_t may_share = 0;
};

// Describes this rank. Loads NCCL if the backend may use it. NCCL refuses a GPU that belongs to two ranks of one host.
// LOCKSTEP_NCCL_SHARE_GPU=1 tries it nevertheless, for tests in which each rank has its own NCCL_HOSTID.
RankGpu describe_gpu(Device device, std::string_view backend);

// "" if NCCL can be used, otherwise why not: "ranks 0 and 1 have the same GPU". Throws if ranks requested different
// backends.
std::string why_not_nccl(std::span<const RankGpu> ranks);

}  // namespace lockstep
