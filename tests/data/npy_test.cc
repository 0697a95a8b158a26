#include "lockstep/data/formats/npy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "tests/data/npy_writing.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using Doubles = std::vector<double>;

template <typename T = double>
std::vector<T> all_of(const FileArray& array) {
  std::vector<T> values(static_cast<std::size_t>(array.rows() * array.row_elements()));
  array.read(0, array.rows(), std::span(values));
  return values;
}

TEST(Npy, ReadsEveryTypeAndOrderThatNumpyWrites) {
  const std::map<std::string, FileArray> arrays = read_npz(LOCKSTEP_NUMPY_FILE);
  int read = 0;
  for (const auto& [name, array] : arrays) {
    if (name == "scalar" || name == "empty") continue;
    Doubles expected;
    for (int i = 0; i < 12; ++i) expected.push_back(name[0] == 'b' ? i % 2 : name[0] == 'u' ? 7 * i : 7 * i - 5);
    EXPECT_EQ(array.dims(), (std::vector<std::int64_t>{2, 3, 2}));
    EXPECT_EQ(all_of(array), expected) << name << ": " << array.describe();
    EXPECT_EQ(all_of<float>(array), std::vector<float>(expected.begin(), expected.end())) << name;
    EXPECT_EQ(all_of<std::int64_t>(array), std::vector<std::int64_t>(expected.begin(), expected.end())) << name;
    std::vector<double> row(6);
    array.read(1, 1, std::span(row));
    EXPECT_EQ(row, Doubles(expected.begin() + 6, expected.end())) << name;
    ++read;
  }
  EXPECT_EQ(read, 12 * 4 + 2);
  EXPECT_EQ(arrays.at("i2>F").describe(), "i16 [2, 3, 2]");
  EXPECT_EQ(all_of(arrays.at("scalar")), (Doubles{2.5}));
  EXPECT_EQ(arrays.at("empty").rows(), 0);
}

// What NumPy 1.24 wrote for np.arange(6, dtype='<i2').reshape(2, 3).
TEST(Npy, TheTestsWriteWhatNumpyWrites) {
  const std::string file = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                           "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') + "\n" +
                           bytes_of<std::int16_t>({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(npy("<i2", "(2, 3)", bytes_of<std::int16_t>({0, 1, 2, 3, 4, 5})).size(), file.size());
  EXPECT_EQ(npy("<i2", "(2, 3)", bytes_of<std::int16_t>({0, 1, 2, 3, 4, 5})), file);
  EXPECT_EQ(all_of(parse_npy(file, "F")), (Doubles{0, 1, 2, 3, 4, 5}));
}

TEST(Npy, ReadsExtremeNumbers) {
  using Limits = std::numeric_limits<std::int64_t>;
  const FileArray whole = parse_npy(npy("<i8", "(2,)", bytes_of<std::int64_t>({Limits::min(), Limits::max()})), "F");
  EXPECT_EQ(all_of<std::int64_t>(whole), (std::vector<std::int64_t>{Limits::min(), Limits::max()}));
  const FileArray large =
      parse_npy(npy(">u8", "(2,)", bytes_of<std::uint64_t>({1, std::uint64_t{1} << 63}, true)), "F");
  EXPECT_EQ(all_of(large), (Doubles{1, 0x1p63}));
  EXPECT_ERROR(all_of<std::int64_t>(large), "F: row 1 has 9223372036854775808, expected a whole number within 64 bits");
  const FileArray half = parse_npy(npy("<f2", "(3,)", bytes_of<std::uint16_t>({0x3555, 0x7bff, 0x0001})), "F");
  EXPECT_EQ(all_of(half), (Doubles{0.333251953125, 65504, 0x1p-24}));
  EXPECT_ERROR(all_of<std::int64_t>(half), "F: row 0 has 0.33325195, expected a whole number");
  const FileArray labels = parse_npy(npy("<f8", "(2,)", bytes_of<double>({3, -1})), "F");
  EXPECT_EQ(all_of<std::int64_t>(labels), (std::vector<std::int64_t>{3, -1}));
}

TEST(Npy, RefusesOtherTypesByName) {
  const auto refused = [](const std::string& descr) { parse_npy(npy(descr, "(1,)", std::string(16, 'x')), "F"); };
  EXPECT_ERROR(refused("|O"),
               "F: its type \"|O\" has Python objects, which only Python reads: they contain code, expected");
  EXPECT_ERROR(refused("<c8"), "complex numbers");
  EXPECT_ERROR(refused("<c16"), "complex numbers");
  EXPECT_ERROR(refused("|S16"), "texts");
  EXPECT_ERROR(refused("<U4"), "texts");
  EXPECT_ERROR(refused("|V16"), "records or raw bytes");
  EXPECT_ERROR(refused("<M8[ns]"), "dates or times");
  EXPECT_ERROR(refused("<f16"), "floats of another size");
  EXPECT_ERROR(refused("|i4"), "does not say the order of bytes");
  EXPECT_ERROR(refused(""), "elements of another type");
  std::string records = npy("X", "(1,)", "12345678");
  records.replace(records.find("'X'"), 3, "[('a','<f4'),('b','<f4')]");
  EXPECT_ERROR(parse_npy(records, "F"), "F: an array of records (fields with names), expected one of numbers");
}

TEST(Npy, ComparesSizesBeforeItAllocates) {
  EXPECT_ERROR(parse_npy(npy("<f8", "(1000000000000, 1000)", "12345678"), "F"),
               "F: truncated: f64 [1000000000000, 1000] takes 8000000000000000 bytes, the file has 8 after its header");
  EXPECT_ERROR(parse_npy(npy("<f8", "(9223372036854775807, 9223372036854775807)", ""), "F"), "takes more bytes");
  EXPECT_ERROR(parse_npy(npy("<f8", "(9223372036854775808,)", ""), "F"), "an extent beyond 64 bits");
  EXPECT_ERROR(parse_npy(npy("<f8", "(9223372036854775807, 9223372036854775807)", "", true), "F"), "takes more bytes");
  EXPECT_ERROR(parse_npy(npy("<f4", "(2,)", "123456789"), "F"),
               "takes 8 bytes, and 1 more follow, expected one array a file");
  EXPECT_EQ(parse_npy(npy("<f4", "(9223372036854775807, 0)", ""), "F").row_elements(), 0);
}

TEST(Npy, NamesWhatIsWrongWithAHeader) {
  const std::string valid = npy("<f4", "(2,)", "12345678");
  for (std::size_t n = 0; n < valid.size(); ++n) EXPECT_THROW(parse_npy(valid.substr(0, n), "F"), Error) << n;
  EXPECT_ERROR(parse_npy("PK\x03\x04....", "F"), "F: not an .npy file: it begins with \"PK\\x03\\x04..\"");
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string file = valid;
    file.replace(file.find(old), old.size(), now);
    parse_npy(file, "F");
  };
  EXPECT_ERROR(with("descr", "Descr"), "F: its header has \"Descr\", expected descr, fortran_order, and shape");
  EXPECT_ERROR(with("fortran_order': False", "descr': '<f4'        "), "F: its header has descr twice");
  EXPECT_ERROR(with("False", "Maybe"), "expected True or False");
  EXPECT_ERROR(with("(2,)", "[2,]"), "expected (");
  EXPECT_ERROR(with("(2,)", "(-2)"), "expected a number");
  EXPECT_ERROR(with("{", "["), "expected {");
  EXPECT_ERROR(with("\x01", "\x04"), "F: version 4.0 of the format, expected 1 to 3");
}

TEST(Npz, ReadsStoredAndDeflatedArrays) {
  const std::string x = npy("<f4", "(2, 2)", bytes_of<float>({1, 2, 3, 4})), y = npy("|u1", "(2,)", "\1\2");
  for (const bool packed : {false, true}) {
    const auto arrays = parse_npz(zip({{"x.npy", x}, {"y.npy", y}}, packed), "F");
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(all_of(arrays.at("x")), (Doubles{1, 2, 3, 4}));
    EXPECT_EQ(all_of(arrays.at("y")), (Doubles{1, 2}));
    EXPECT_EQ(arrays.at("y").file(), "F: y");
  }
}

TEST(Npz, NamesWhatIsWrong) {
  const std::string x = npy("<f4", "(2, 2)", bytes_of<float>({1, 2, 3, 4}));
  for (const bool packed : {false, true}) {
    const std::string valid = zip({{"x.npy", x}}, packed);
    for (std::size_t n = 0; n < valid.size(); ++n) EXPECT_THROW(parse_npz(valid.substr(0, n), "F"), Error) << n;
    std::string other = valid;
    other[35 + (packed ? 20 : x.size() - 1)] ^= 1;
    EXPECT_ERROR(parse_npz(other, "F"), "F: \"x.npy\": damaged");
  }
  EXPECT_ERROR(parse_npz("no zip archive", "F"), "F: not a zip archive, or truncated");
  EXPECT_ERROR(parse_npz(zip({{"x.txt", x}}, true), "F"), "F: has \"x.txt\", expected arrays named .npy");
  EXPECT_ERROR(parse_npz(zip({{"x.npy", x}, {"x.npy", x}}, true), "F"), "F: two entries have the name \"x.npy\"");
  std::string encrypted = zip({{"x.npy", x}}, true);
  encrypted[encrypted.find("PK\x01\x02") + 8] = 1;
  EXPECT_ERROR(parse_npz(encrypted, "F"), "F: \"x.npy\": encrypted");
  std::string bzip2 = zip({{"x.npy", x}}, true);
  bzip2[bzip2.find("PK\x01\x02") + 10] = 12;
  EXPECT_ERROR(parse_npz(bzip2, "F"), "compressed by method 12, expected none (0) or deflate (8)");
}

TEST(Npz, ASmallFileTakesLittleMemory) {
  // Each is within the limit, and all of them are not.
  const std::string large = npy("|u1", "(30000000,)", std::string(30'000'000, '\0'));
  const std::string file = zip({{"x.npy", large}, {"y.npy", large}, {"z.npy", large}}, true);
  ASSERT_LT(file.size(), 200'000U);
  const MemoryLimit limit(rlim_t{80} << 20);
  EXPECT_ERROR(parse_npz(file, "F"),
               fmt::format("F: \"z.npy\": unpacks to 30000128 bytes: takes 90000384 bytes of memory, the limit for a "
                           "file of {} bytes is 67108864; numpy.savez() writes arrays that are not packed",
                           file.size()));
}

TEST(Npz, EntriesDoNotShareBytes) {
  // The directory says twice that y.npy is where x.npy is.
  const std::string x = npy("|u1", "(2,)", "\1\2");
  std::string file = zip({{"x.npy", x}, {"y.npy", x}}, false);
  const std::size_t second = file.rfind("PK\x01\x02");
  file.replace(second + 42, 4, 4, '\0');
  EXPECT_ERROR(parse_npz(file, "F"), "F: \"y.npy\": damaged: it shares bytes with \"x.npy\"");
}

TEST(FileArray, ReadsRowsOfLargeFilesWhereTheyAre) {
  TemporaryFolder folder;
  constexpr std::int64_t kLargeRows = 70'000;
  const std::string header = npy("<i4", "(70000, 256)", "");
  const auto path = folder.write("x.npy", header);
  std::filesystem::resize_file(path, header.size() + kLargeRows * 1024);  // zeros that take no space
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (const std::int32_t r : {12'345, 69'999}) {
      file.seekp(static_cast<std::streamoff>(header.size()) + std::int64_t{r} * 1024)
          .write(bytes_of<std::int32_t>({r}).data(), 4);
    }
  }
  const FileArray array = read_npy(path);
  std::vector<std::int64_t> row(256);
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{12'345}, kLargeRows - 1}) {
    array.read(r, 1, std::span(row));
    EXPECT_EQ(row[0], r);
    EXPECT_EQ(row[255], 0);
  }
  EXPECT_ERROR(array.read(kLargeRows, 1, std::span(row)), "rows 70000 to 70001 of 70000");
  std::filesystem::resize_file(path, 1000);
  EXPECT_ERROR(array.read(kLargeRows - 1, 1, std::span(row)), "the file was changed while it was used");
}

// Every byte that an array says it has is read.
void read_everything(const FileArray& array) {
  if (array.bytes() > 1 << 20) FAIL() << array.describe();
  std::vector<double> values(static_cast<std::size_t>(array.rows() * array.row_elements()));
  array.read(0, array.rows(), std::span(values));
}

template <typename Parse>
void fuzz(const std::vector<std::string>& files, std::span<const std::string_view> pieces, std::size_t front,
          int usual_rounds, const Parse& parse_one) {
  const char* const variable = std::getenv("LOCKSTEP_FUZZ_ROUNDS");
  const int rounds = variable ? std::atoi(variable) : usual_rounds;
  int read = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const std::string file = mutated(files[dice.below(files.size())], dice, {.pieces = pieces, .front = front});
    try {
      parse_one(file);
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("fuzz")) << error.what();
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, rounds / 100);
  EXPECT_GT(refused, rounds / 3);
}

constexpr std::array<std::string_view, 22> kNpyPieces{"{",
                                                      "}",
                                                      "(",
                                                      ")",
                                                      ",",
                                                      "'",
                                                      "descr",
                                                      "fortran_order",
                                                      "shape",
                                                      "True",
                                                      "False",
                                                      "<f8",
                                                      "|b1",
                                                      ">u4",
                                                      "9223372036854775807",
                                                      "4294967296",
                                                      "L",
                                                      "-1",
                                                      "0",
                                                      "PK\x01\x02",
                                                      "\xff\xff\xff\xff",
                                                      "\x93NUMPY"};

TEST(NpyFuzz, DamagedFilesAreReadOrRefused) {
  const std::vector<std::string> files{npy("<f4", "(2, 3)", std::string(24, 'a')),
                                       npy(">i2", "(2, 3, 2)", std::string(24, 'b'), true),
                                       npy("|b1", "(4,)", std::string(4, '\1'), false, 2)};
  fuzz(files, kNpyPieces, 80, 5000, [](const std::string& file) { read_everything(parse_npy(file, "fuzz")); });
}

TEST(NpzFuzz, DamagedFilesAreReadOrRefused) {
  const std::string x = npy("<f4", "(2, 3)", std::string(24, 'a')), y = npy(">i2", "(2,)", "abcd", true);
  const std::vector<std::string> files{zip({{"x.npy", x}, {"y.npy", y}}, true),
                                       zip({{"x.npy", x}, {"y.npy", y}}, false), zip({{"x.npy", x}}, true)};
  fuzz(files, kNpyPieces, 0, 1000, [](const std::string& file) {
    for (const auto& [name, array] : parse_npz(file, "fuzz")) read_everything(array);
  });
}

}  // namespace
}  // namespace lockstep
