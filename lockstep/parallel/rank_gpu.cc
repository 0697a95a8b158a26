#include "lockstep/parallel/rank_gpu.h"

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_links.h"

namespace lockstep {

RankGpu describe_gpu(Device device, std::string_view backend) {
  RankGpu gpu;
  backend.copy(gpu.backend, sizeof gpu.backend - 1);
  if (backend == "host" || backend == "mpi" || device.kind() != DeviceKind::cuda) return gpu;
  device.info()->gpu_uuid.copy(gpu.uuid, sizeof gpu.uuid - 1);
  gpu.nccl = find_nccl().version;
  gpu.may_share = static_cast<std::int32_t>(environment_integer("LOCKSTEP_NCCL_SHARE_GPU", 0, 1).value_or(0));
  return gpu;
}

std::string why_not_nccl(std::span<const RankGpu> ranks) {
  const std::string_view backend = ranks[0].backend;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    check(backend == ranks[r].backend, "rank 0 requested backend {}, rank {} requested {}: all ranks need the same",
          backend, r, ranks[r].backend);
  }
  if (backend == "host" || backend == "mpi") return "the backend is " + std::string(backend);
  const auto version = [](std::int32_t code) {
    return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].uuid[0] == '\0') return fmt::format("rank {} has no GPU", r);
    if (ranks[r].nccl == 0) return fmt::format("rank {} has no NCCL", r);
    if (ranks[r].nccl != ranks[0].nccl) {
      return fmt::format("rank 0 has NCCL {}, rank {} {}", version(ranks[0].nccl), r, version(ranks[r].nccl));
    }
    const auto same = std::ranges::find(ranks.first(r), std::string_view(ranks[r].uuid),
                                        [](const RankGpu& other) { return std::string_view(other.uuid); });
    if (same != ranks.begin() + static_cast<std::ptrdiff_t>(r) && ranks[r].may_share == 0) {
      return fmt::format("ranks {} and {} have the same GPU", same - ranks.begin(), r);
    }
  }
  return ranks.size() == 1 ? "there is one rank" : "";
}

}  // namespace lockstep
