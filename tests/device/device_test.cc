#include "lockstep/device/device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Device, TheDefaultOneIsTheHost) {
  const Device host;
  EXPECT_TRUE(host.is_host());
  EXPECT_EQ(host.name(), "host");
  EXPECT_EQ(host.str(), "host");
  EXPECT_EQ(host.kind(), DeviceKind::cpu);
  EXPECT_EQ(host.index(), -1);
  EXPECT_EQ(host.info(), nullptr);
  EXPECT_EQ(host, Device());
}

TEST(Device, StandsForItsInfo) {
  DeviceInfo gpu, twin;
  gpu.kind = twin.kind = DeviceKind::cuda;
  gpu.index = twin.index = 1;
  gpu.name = twin.name = "cuda:1";
  const Device device(&gpu);
  EXPECT_FALSE(device.is_host());
  EXPECT_EQ(device.name(), "cuda:1");
  EXPECT_EQ(fmt::format("{}", device), "cuda:1");
  EXPECT_EQ(device.kind(), DeviceKind::cuda);
  EXPECT_EQ(device.index(), 1);
  EXPECT_EQ(device, Device(&gpu));
  EXPECT_NE(device, Device());
  EXPECT_NE(device, Device(&twin)) << "another Runtime's device of the same name is another device";
}

}  // namespace
}  // namespace lockstep
