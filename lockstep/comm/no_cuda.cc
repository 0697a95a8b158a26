// Built without CUDA.
#include "lockstep/comm/device_links.h"

namespace lockstep {
namespace {

constexpr const char* kWhyNone = "Lockstep was built without CUDA";

}  // namespace

NcclInfo find_nccl() { return {.version = 0, .why_none = kWhyNone}; }
std::unique_ptr<DeviceLinks> make_nccl_links(Transport&, int, Stream&, const WaitCheck&, const TimeLimit&) {
  fail("NCCL: {}", kWhyNone);
}

}  // namespace lockstep
