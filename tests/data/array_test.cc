#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/data/array_dataset.h"
#include "lockstep/data/formats/cifar.h"
#include "tests/data/npy_writing.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ArrayDims = std::vector<std::int64_t>;

FileArray bytes_array(const std::string& bytes, ArrayDims dims) {
  return {bytes, ElementType::u8, std::move(dims), "X"};
}

template <typename T>
FileArray number_array(const std::vector<T>& values, ElementType type, ArrayDims dims, const std::string& name = "X") {
  return {bytes_of(values), type, std::move(dims), name};
}

FileArray labels(const std::vector<std::int64_t>& values) {
  return number_array(values, ElementType::i64, {std::ssize(values)}, "Y");
}

SplitRows first_rows(std::int64_t count) {
  SplitRows rows;
  for (std::int64_t i = 0; i < count; ++i) rows.train.push_back(i);
  return rows;
}

ArraySchema array_schema(const FileArray& x, const FileArray& y,
                         const ArraySchemaOptions& options = {.task = TaskKind::classification}) {
  return make_array_schema(x, y, split_rows(x, y, 0), options);
}

TEST(ArraySchema, PicturesOfBytesAreDividedBy255) {
  const FileArray y = labels({7, 3});
  const ArraySchema gray = array_schema(bytes_array(std::string("\0\xff\x33\0", 4) + "abcd", {2, 2, 2}), y);
  EXPECT_EQ(gray.input, (ArrayDims{1, 2, 2}));
  EXPECT_EQ(gray.classes, (std::vector<std::string>{"3", "7"}));
  const ArrayDataset data(bytes_array(std::string("\0\xff\x33\0", 4) + "abcd", {2, 2, 2}), y, gray);
  EXPECT_EQ(data.get(0)[0].to_vector<float>(), (std::vector<float>{0, 1, 51.0f / 255, 0}));
  EXPECT_EQ(data.get(0)[1].item<std::int64_t>(), 1);
  EXPECT_EQ(data.labels(), (std::vector<std::int64_t>{1, 0}));
}

TEST(ArraySchema, ChannelsComeFirst) {
  std::string bytes;
  for (int i = 0; i < 2 * 12; ++i) bytes += static_cast<char>(i);
  const FileArray last = bytes_array(bytes, {2, 2, 2, 3}), first = bytes_array(bytes, {2, 3, 2, 2});
  const FileArray y = labels({0, 1});
  const ArrayDataset data(last, y, array_schema(last, y));
  EXPECT_EQ(data.get(0)[0].shape(), (Shape{3, 2, 2}));
  std::vector<float> expected;
  for (int i : {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}) expected.push_back(static_cast<float>(i) / 255);
  EXPECT_EQ(data.get(0)[0].to_vector<float>(), expected);
  EXPECT_FALSE(array_schema(first, y).channels_last);
  EXPECT_EQ(array_schema(first, y).input, (ArrayDims{3, 2, 2}));
}

TEST(ArraySchema, NormalizesElementsAndChannelsOfTrainingRows) {
  const FileArray x = number_array<float>({1, 5, 3, 5, 100, 7}, ElementType::f32, {3, 2});
  const ArraySchema schema = make_array_schema(x, labels({0, 1, 1}), first_rows(2), {.task = TaskKind::classification});
  EXPECT_EQ(schema.mean, (std::vector<double>{2, 5}));
  EXPECT_EQ(schema.stddev, (std::vector<double>{1, 1})) << "a constant counts as 1";
  const ArrayDataset data(x, labels({0, 1, 1}), schema);
  EXPECT_EQ(data.get(2)[0].to_vector<float>(), (std::vector<float>{98, 2}));

  const FileArray pictures = number_array<double>({1, 3, 10, 10, 1, 3, 30, 30}, ElementType::f64, {2, 2, 1, 2});
  const ArraySchema channels = array_schema(pictures, labels({0, 1}));
  EXPECT_EQ(channels.mean, (std::vector<double>{2, 20})) << "2 channels";
  EXPECT_EQ(channels.stddev, (std::vector<double>{1, 10}));
}

TEST(ArraySchema, FarFromZeroIsExact) {
  const FileArray x = number_array<double>({1.6e9, 1.6e9 + 2}, ElementType::f64, {2, 1});
  const ArrayDataset data(x, labels({0, 1}), array_schema(x, labels({0, 1})));
  EXPECT_EQ(data.get(1)[0].to_vector<float>(), (std::vector<float>{1}));
}

TEST(ArraySchema, DecidesTheTaskByTheLabels) {
  std::vector<std::int64_t> whole;
  std::vector<double> floats;
  for (int i = 0; i < 200; ++i) {
    whole.push_back(i % 40);
    floats.push_back(i % 40);
  }
  const FileArray x = number_array(floats, ElementType::f64, {200});
  const auto task = [&](const FileArray& y) { return make_array_schema(x, y, split_rows(x, y, 0)).task; };
  EXPECT_EQ(task(labels(whole)), TaskKind::classification);
  EXPECT_EQ(task(number_array(floats, ElementType::f64, {200})), TaskKind::regression) << "floats of many values";
  for (double& v : floats) v = std::floor(v / 10);
  EXPECT_EQ(task(number_array(floats, ElementType::f64, {200, 1})), TaskKind::classification);
  std::vector<double> pairs(400, 1);
  pairs[5] = 2;
  EXPECT_EQ(task(number_array(pairs, ElementType::f64, {200, 2})), TaskKind::regression) << "two numbers each";
  floats[3] = 0.5;
  EXPECT_EQ(task(number_array(floats, ElementType::f64, {200})), TaskKind::regression);
}

TEST(ArrayDataset, LabelsOfARegressionAreNormalized) {
  const FileArray x = number_array<float>({1, 2, 3}, ElementType::f32, {3});
  const FileArray y = number_array<float>({10, 0, 20, 0, 30, 3}, ElementType::f32, {3, 2}, "Y");
  const ArraySchema schema = array_schema(x, y, {.task = TaskKind::regression});
  EXPECT_EQ(schema.target_mean, (std::vector<double>{20, 1}));
  const ArrayDataset data(x, y, schema);
  EXPECT_EQ(data.get(1)[1].shape(), (Shape{2}));
  EXPECT_EQ(data.get(1)[1].to_vector<float>()[0], 0);
  const std::vector<std::int64_t> indices{2, 1};
  const Example batch = data.batch(indices, {});
  EXPECT_EQ(batch[1].shape(), (Shape{2, 2}));
  EXPECT_NEAR(batch[1].to_vector<float>()[0], std::sqrt(1.5), 1e-6);
  EXPECT_EQ(ArrayDataset(x, {}, schema).get(0).size(), 1u) << "without y";
}

TEST(ArrayDataset, NamesWhatIsWrong) {
  const FileArray x = number_array<float>({1, 2, 3, NAN}, ElementType::f32, {4});
  EXPECT_ERROR(array_schema(x, labels({0, 1, 0, 1})), "X: row 3 has nan, expected finite numbers");
  EXPECT_ERROR(array_schema(x, labels({0, 1})), "X has 4 rows, Y has 2, expected as many");
  const SplitRows rows = first_rows(3);
  EXPECT_ERROR(make_array_schema(x, labels({4, 4, 4, 4}), rows, {.task = TaskKind::classification}),
               "Y: the label is 4 in every row");
  EXPECT_ERROR(make_array_schema(x, labels({0, 1, 2, 0}), rows, {.class_names = {"a", "b"}}),
               "Y: labels from 0 to 2, expected 0 to 1");
  const ArraySchema schema = make_array_schema(x, labels({0, 1, 0, 1}), rows, {.task = TaskKind::classification});
  EXPECT_ERROR(ArrayDataset(x, labels({0, 1, 0, 2}), schema), "Y: row 3 has label 2, expected one of the 2 classes");
  EXPECT_ERROR(ArrayDataset(x, labels({0, 1, 0, 1}), schema).get(3), "X: row 3 has a number that is not finite in f32");
  EXPECT_ERROR(ArrayDataset(bytes_array("ab", {1, 2}), {}, schema), "X: rows of [2], expected [] as in training");
  EXPECT_ERROR(array_schema(bytes_array("", {1, 1, 1, 1, 0}), labels({0})),
               "X: u8 [1, 1, 1, 1, 0], expected [rows, elements]");
  EXPECT_ERROR(array_schema(bytes_array("a", {1}), number_array<double>({0.5}, ElementType::f64, {1}, "Y")),
               "Y: row 0 has 0.5, expected a whole number for a class");
}

TEST(ArrayDataset, BytesAndOtherNumbersDoNotStandForEachOther) {
  const FileArray bytes = bytes_array(std::string("\0\xff", 2), {2, 1, 1});
  const FileArray fractions = number_array<float>({0, 1}, ElementType::f32, {2, 1, 1});
  const ArraySchema of_bytes = array_schema(bytes, labels({0, 1}), {.task = TaskKind::classification});
  const ArraySchema of_fractions = array_schema(fractions, labels({0, 1}), {.task = TaskKind::classification});
  EXPECT_ERROR(ArrayDataset(fractions, {}, of_bytes), "X: pictures of f32, expected u8 as in training");
  EXPECT_ERROR(ArrayDataset(bytes, {}, of_fractions), "X: pictures of u8, expected f32 as in training");
  EXPECT_EQ(ArrayDataset(bytes, {}, of_bytes).get(1)[0].item<float>(), 1);
}

TEST(ArrayDataset, TheSplitFollowsTheContent) {
  std::vector<std::int64_t> numbers;
  for (int i = 0; i < 1000; ++i) numbers.push_back(i);
  const FileArray x = number_array(numbers, ElementType::i64, {1000}), y = labels(numbers);
  const SplitRows rows = split_rows(x, y, 0.2);
  EXPECT_NEAR(static_cast<double>(rows.validation.size()), 200, 50);
  EXPECT_EQ(rows.train.size() + rows.validation.size(), 1000u);
  numbers.erase(numbers.begin(), numbers.begin() + 500);
  const FileArray later_x = number_array(numbers, ElementType::i64, {500}), later_y = labels(numbers);
  for (const std::int64_t row : split_rows(later_x, later_y, 0.2).validation) {
    EXPECT_TRUE(std::ranges::binary_search(rows.validation, row + 500));
  }
}

// Records of CIFAR: labels, then pixels that say which picture it is.
std::string cifar_file(const std::vector<std::string>& labels_of_pictures, char first) {
  std::string file;
  for (const std::string& label : labels_of_pictures) {
    file += label + std::string(3072, first);
    ++first;
  }
  return file;
}

TEST(Cifar, ReadsTenAndHundredClasses) {
  TemporaryFolder folder;
  folder.write("data_batch_1.bin", cifar_file({"\x01", "\x09"}, 10));
  folder.write("data_batch_2.bin", cifar_file({"\x02"}, 20));
  folder.write("test_batch.bin", cifar_file({std::string(1, '\0')}, 30));
  folder.write("batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  EXPECT_TRUE(is_cifar(folder.path()));
  const CifarFiles ten = read_cifar(folder.path());
  EXPECT_EQ(ten.train.images.dims(), (ArrayDims{3, 3, 32, 32}));
  EXPECT_EQ(ten.class_names[9], "truck");
  EXPECT_EQ(ten.files.size(), 3u);
  const ArraySchema schema = array_schema(ten.train.images, ten.train.labels, {.class_names = ten.class_names});
  const ArrayDataset data(ten.train.images, ten.train.labels, schema);
  EXPECT_EQ(data.labels(), (std::vector<std::int64_t>{1, 9, 2}));
  EXPECT_EQ(data.get(1)[0].shape(), (Shape{3, 32, 32}));
  EXPECT_EQ(data.get(1)[0].to_vector<float>()[3071], 11 / 255.0f);
  EXPECT_EQ(data.get(2)[0].to_vector<float>()[0], 20 / 255.0f);
  EXPECT_EQ(ArrayDataset(ten.test->images, ten.test->labels, schema).labels(), (std::vector<std::int64_t>{0}));

  TemporaryFolder other;
  other.write("train.bin", cifar_file({"\x01\x63", "\x02\x05"}, 1));
  const CifarFiles hundred = read_cifar(other.path());
  EXPECT_FALSE(hundred.test.has_value());
  EXPECT_EQ(hundred.class_names.size(), 100u);
  std::array<std::int64_t, 2> fine{};
  hundred.train.labels.read(0, 2, std::span<std::int64_t>(fine));
  EXPECT_EQ(fine[0], 99);
}

TEST(Cifar, NamesWhatIsWrong) {
  TemporaryFolder folder;
  EXPECT_FALSE(is_cifar(folder.path()));
  EXPECT_ERROR(read_cifar(folder.path()), "neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)");
  const std::string valid = cifar_file({"\x01", "\x02"}, 1);
  folder.write("data_batch_1.bin", valid.substr(1));
  EXPECT_ERROR(read_cifar(folder.path()), "6145 bytes, expected a multiple of 3073");
  folder.write("data_batch_1.bin", "");
  EXPECT_ERROR(read_cifar(folder.path()), "0 bytes, expected a multiple of 3073");
  folder.write("data_batch_1.bin", cifar_file({"\x01", "\x0a"}, 1));
  EXPECT_ERROR(read_cifar(folder.path()), "picture 1 has label 10, expected 0 to 9");
  folder.write("data_batch_1.bin", valid);
  folder.write("data_batch_3.bin", valid);
  EXPECT_ERROR(read_cifar(folder.path()), "has data_batch_3.bin, and no data_batch_2.bin, expected all from 1 on");
  folder.write("data_batch_2.bin", valid);
  folder.write("batches.meta.txt", "airplane\n");
  EXPECT_ERROR(read_cifar(folder.path()), "1 names, expected 10");
}

// Sizes and labels at the edges; the pixels are free.
TEST(CifarFuzz, DamagedFilesAreReadOrRefused) {
  const char* const variable = std::getenv("LOCKSTEP_FUZZ_ROUNDS");
  const int rounds = variable ? std::atoi(variable) : 300;
  const std::string ten = cifar_file({"\x01", "\x09"}, 1), hundred = cifar_file({"\x01\x63", "\x02\x05"}, 1);
  TemporaryFolder folder;
  int read = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const bool is_ten = dice.below(2) == 0;
    std::string file = mutated(is_ten ? ten : hundred, dice, {.front = 4});
    if (dice.below(2) == 0) file.resize((is_ten ? 3073 : 3074) * dice.below(4));
    const std::filesystem::path path = folder / (is_ten ? "data_batch_1.bin" : "train.bin");
    std::filesystem::remove(folder / (is_ten ? "train.bin" : "data_batch_1.bin"));
    std::ofstream(path, std::ios::binary) << file;
    try {
      const CifarFiles files = read_cifar(folder.path());
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(files.train.images.rows()) * 3072);
      files.train.images.read(0, files.train.images.rows(), std::span(pixels));
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(folder.path().string())) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, rounds / 20);
  EXPECT_GT(refused, rounds / 4);
}

}  // namespace
}  // namespace lockstep
