// Lists of devices as users write them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

TEST(DeviceList, NamesDevicesOfBothKinds) {
  const DeviceList list = parse_device_list("cpu:2,cuda:1/0,cuda:0/3");
  EXPECT_EQ(list.count, 3);
  EXPECT_EQ(list.options.cpu_devices, 3);
  EXPECT_EQ(list.options.cuda, (std::vector{1, 0}));
  EXPECT_EQ(list.options.cuda_logical, 4);
  EXPECT_ERROR(parse_device_list("cuda:0,cuda:0/1"), "whole and logical GPUs are both listed, expected one kind");
  EXPECT_ERROR(parse_device_list("cpu:1024"), "device 'cpu:1024'");
}

// A list is read as it stands, or refused with an error that names what is wrong.
TEST(DeviceList, ADamagedOneIsReadOrRefused) {
  constexpr std::array<std::string_view, 12> kPiecesOfDeviceLists{
      ",", ":", "/", "cpu:", "cuda:", "-1", "0", "1023", "1024", "99999999999999999999", "cpu", "cuda:0/0"};
  const std::array<std::string, 3> lists{"cpu:0,cpu:1", "cuda:0,cuda:1", "cpu:3,cuda:1/0,cuda:0/3"};
  int read = 0, refused = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    Dice dice(round);
    const std::string text = mutated(lists[round % lists.size()], dice, {.pieces = kPiecesOfDeviceLists});
    try {
      const DeviceList list = parse_device_list(text);
      EXPECT_EQ(list.count, 1 + std::ranges::count(text, ',')) << text;
      EXPECT_LE(list.options.cpu_devices, 1024) << text;
      EXPECT_LE(list.options.cuda_logical, 1024) << text;
      const std::set<int> gpus(list.options.cuda.begin(), list.options.cuda.end());
      EXPECT_EQ(gpus.size(), list.options.cuda.size()) << text << ": a GPU twice";
      for (const int gpu : gpus) EXPECT_TRUE(gpu >= 0 && gpu < 1024) << text;
      ++read;
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find("device"), std::string_view::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep
