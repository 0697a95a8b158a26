#include "lockstep/data/formats/idx.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "tests/data/idx_files.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using Dims = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

IdxArray parse(const std::string& bytes) {
  std::istringstream stream(bytes);
  return read_idx(stream, "F");
}

TEST(ReadIdx, ReadsOneToFourDimensionsGzippedOrNot) {
  for (const std::string& file : {idx_header({3}) + "abc", gzip(idx_header({3}) + "abc")}) {
    EXPECT_EQ(parse(file).dims, (Dims{3}));
    EXPECT_EQ(parse(file).data, (Bytes{'a', 'b', 'c'}));
  }
  EXPECT_EQ(parse(idx_header({2, 3}) + "abcdef").dims, (Dims{2, 3}));
  EXPECT_EQ(parse(idx_header({1, 2, 1}) + "ab").dims, (Dims{1, 2, 1}));
  EXPECT_EQ(parse(idx_header({1, 2, 1, 2}) + "abcd").dims, (Dims{1, 2, 1, 2}));
  EXPECT_EQ(parse(idx_header({0x01020304, 0})).dims, (Dims{0x01020304, 0}));
}

TEST(ReadIdx, ReadsDataOfManyBuffers) {
  std::string data(5'000'000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 7);
  const std::string plain = idx_header({5, 1000, 1000}) + data;
  for (const std::string& file : {plain, gzip(plain)}) {
    const IdxArray array = parse(file);
    EXPECT_TRUE(std::equal(array.data.begin(), array.data.end(), data.begin(), data.end(),
                           [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }));
  }
}

TEST(ReadIdx, GoesByTheContentNotTheName) {
  TemporaryFolder folder;
  EXPECT_EQ(read_idx(folder.write("plain.gz", idx_header({1}) + "a")).data, (Bytes{'a'}));
  EXPECT_EQ(read_idx(folder.write("packed", gzip(idx_header({1}) + "a"))).data, (Bytes{'a'}));
}

TEST(ReadIdx, ReadsGzipFilesOfSeveralMembers) {
  EXPECT_EQ(parse(gzip(idx_header({4}) + "ab") + gzip("") + gzip("cd")).data, (Bytes{'a', 'b', 'c', 'd'}));
}

TEST(ReadIdx, NamesFilesThatCannotBeRead) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_idx(folder / "none"), "cannot read " + (folder / "none").string() + ": No such file");
  EXPECT_ERROR(read_idx(folder.path()), "it is a directory");
}

TEST(ReadIdx, RefusesOtherFormats) {
  EXPECT_ERROR(parse(""), "F: too short for the header of an IDX file");
  EXPECT_ERROR(parse("\x1f"), "F: too short");
  EXPECT_ERROR(parse("\x89PNG...."), "F: not an IDX file, it begins with 89 50 4e 47, expected 00 00 08");
  EXPECT_ERROR(parse(idx_header({1}, 0x0d) + "abcd"), "F: holds 32-bit floats (0x0d), expected unsigned bytes (0x08)");
  EXPECT_ERROR(parse(idx_header({1}, 0x55) + "a"), "F: holds an unknown type of elements (0x55)");
  EXPECT_ERROR(parse(idx_header({}) + "abcd"), "F: has 0 dimensions, expected 1 to 4");
  EXPECT_ERROR(parse(idx_header({1, 1, 1, 1, 1}) + "a"), "F: has 5 dimensions, expected 1 to 4");
}

TEST(ReadIdx, RefusesTruncatedFiles) {
  const std::string plain = idx_header({2, 3}) + "abcdef";
  const std::string packed = gzip(plain);
  for (std::size_t n = 0; n < plain.size(); ++n) EXPECT_THROW(parse(plain.substr(0, n)), Error) << n;
  for (std::size_t n = 0; n < packed.size(); ++n) EXPECT_THROW(parse(packed.substr(0, n)), Error) << n;
  EXPECT_ERROR(parse(plain.substr(0, 11)), "F: too short for the header");
  EXPECT_ERROR(parse(plain.substr(0, 16)), "F: truncated: the header claims 2 x 3 = 6 bytes of data, the file has 4");
  EXPECT_ERROR(parse(gzip(plain.substr(0, 16))), "the file has 4");
  EXPECT_ERROR(parse(packed.substr(0, packed.size() - 1)), "F: the gzip stream ends early, the file is truncated");
}

TEST(ReadIdx, RefusesTrailingBytes) {
  const std::string plain = idx_header({2, 3}) + "abcdef";
  EXPECT_ERROR(parse(plain + "g"), "F: more data follows the 2 x 3 = 6 bytes that its header claims");
  EXPECT_ERROR(parse(gzip(plain + "g")), "more data follows");
  EXPECT_ERROR(parse(gzip(plain) + gzip("g")), "more data follows");
  EXPECT_ERROR(parse(gzip(plain) + "g"), "F: the gzip stream ends early");
  EXPECT_ERROR(parse(gzip(plain) + "garbage"), "F: the gzip stream is corrupt: incorrect header check");
}

TEST(ReadIdx, VerifiesTheChecksumOfAGzipFile) {
  const std::string plain = idx_header({2, 3}) + "abcdef";
  for (std::size_t back = 5; back <= 8; ++back) {
    std::string packed = gzip(plain);
    packed[packed.size() - back] ^= 1;
    EXPECT_ERROR(parse(packed), "F: the gzip stream is corrupt: incorrect data check");
  }
}

TEST(ReadIdx, AHeaderAloneTakesNoMemory) {
  const std::string claim = idx_header({0xffffffff, 2}) + "abc";
  const std::string packed = gzip(claim);
  const MemoryLimit limit(rlim_t{1} << 30);
  // The rest of the message depends on the machine's memory.
  EXPECT_ERROR(parse(claim), "= 8589934590 bytes of data");
  EXPECT_ERROR(parse(packed), "= 8589934590 bytes of data");
  EXPECT_ERROR(parse(idx_header({0xffffffff, 0xffffffff})), "more than any memory holds");
  EXPECT_ERROR(parse(idx_header({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) + "abc"),
               "F: its header claims 4294967295 x 4294967295 x 4294967295 x 4294967295 bytes of data");
}

TEST(ReadIdx, RefusesClaimsBeyondTheMemory) {
  for (const std::string& file : {idx_header({0xffffffff, 0xffff}) + "abc", gzip(idx_header({0xffffffff, 0xffff}))}) {
    EXPECT_ERROR(parse(file),
                 "claims 4294967295 x 65535 = 281470681677825 bytes of data: takes 281470681677825 bytes of memory, "
                 "this process has ");
  }
}

TEST(ReadIdx, RefusesClaimsOutOfProportionToTheFile) {
  TemporaryFolder folder;
  const std::string packed = gzip(idx_header({100'000'000}) + std::string(100'000'000, '\0'));
  const std::string file = folder.write("f", packed);
  const MemoryLimit limit(rlim_t{80} << 20);
  EXPECT_ERROR(read_idx(file), fmt::format("f: the header claims 100000000 = 100000000 bytes of data: takes 100000000 "
                                           "bytes of memory, the limit for a file of {} bytes is 67108864; gunzip it "
                                           "first",
                                           packed.size()));
  EXPECT_ERROR(read_idx(folder.write("plain", idx_header({1'000'000}) + "abc")),
               "truncated: the header claims 1000000");
  const std::string zeros = gzip(idx_header({5'000'000}) + std::string(5'000'000, '\0'));
  EXPECT_EQ(read_idx(folder.write("zeros", zeros)).data.size(), 5'000'000u);
}

TEST(ReadIdx, UnpacksNoMoreThanTheHeaderClaims) {
  std::mt19937 random(1);
  std::string data(1 << 20, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  std::istringstream stream(gzip(idx_header({1}) + data));
  EXPECT_ERROR(read_idx(stream, "F"), "more data follows the 1 = 1 bytes");
  EXPECT_LT(stream.tellg(), 100'000) << "it went on reading";
}

// Whatever happens to a file, it is read or refused.
TEST(ReadIdx, SurvivesMutatedFiles) {
  std::string data(300, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37 % 11);
  const std::string plain = idx_header({3, 10, 10}) + data;
  const std::vector<std::string> seeds = {plain, gzip(plain), idx_header({5}) + "abcde",
                                          gzip(plain.substr(0, 100)) + gzip(plain.substr(100))};
  int read = 0, refused = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    Dice dice(round);
    const bool pack = dice.below(4) == 0;  // damage before packing gets past the checksum
    const std::string file = mutated(seeds[round % seeds.size()], dice, {.front = 20});
    try {
      const IdxArray array = parse(pack ? gzip(file) : file);
      std::size_t total = 1;
      for (const std::int64_t dim : array.dims) total *= static_cast<std::size_t>(dim);
      ASSERT_EQ(array.data.size(), total) << "round " << round;
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep
