// Every reader with what our writers make, with what once was a fault (corpus/READER/*), and with some damaged inputs.
// `./test fuzz` looks for more.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "tests/fuzz/limits.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

class FuzzedReader : public ::testing::TestWithParam<std::pair<std::string_view, MakeReader>> {
 protected:
  Reader reader_ = GetParam().second();
};

TEST_P(FuzzedReader, TakesWhatWritersMake) {
  ASSERT_FALSE(reader_.seeds.empty());
  for (const std::string& seed : reader_.seeds) EXPECT_EQ(read_within_limits(reader_, seed), Outcome::read) << seed;
}

TEST_P(FuzzedReader, TakesNoMoreThanItMayForWhatOnceWasAFault) {
  const std::filesystem::path folder = std::filesystem::path(LOCKSTEP_FUZZ_CORPUS) / GetParam().first;
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(read_within_limits(reader_, bytes)) << entry.path();
  }
}

TEST_P(FuzzedReader, TakesOrRefusesDamagedInput) {
  constexpr int kRounds = 2000;
  constexpr std::size_t kMostBytes = 1 << 16;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const std::string bytes = damaged(reader_.seeds[dice.below(reader_.seeds.size())], dice, reader_, kMostBytes);
    try {
      refused += read_within_limits(reader_, bytes) == Outcome::refused;
    } catch (const std::exception& fault) {
      FAIL() << "round " << round << ": " << fault.what();
    }
  }
  if (reader_.throws) {
    EXPECT_GT(refused, kRounds / 20) << "or the mutations test nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(, FuzzedReader, ::testing::ValuesIn(readers()),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace lockstep::fuzz
