// NCCL is loaded at first use (comm/cuda/nccl_library.cc), which needs no GPU.
#include <gtest/gtest.h>

#include "lockstep/comm/device_links.h"

namespace lockstep {
namespace {

#if __has_include(<nccl.h>)

TEST(NcclLibrary, IsThereWhenItIsAskedFor) {
  const NcclInfo nccl = find_nccl();
  EXPECT_GE(nccl.version, 22700) << nccl.why_none;
  EXPECT_EQ(nccl.why_none, "");
}

#else

TEST(NcclLibrary, IsMissedByName) {
  EXPECT_EQ(find_nccl().version, 0);
  EXPECT_EQ(find_nccl().why_none, "Lockstep was built without NCCL");
}

#endif

}  // namespace
}  // namespace lockstep
