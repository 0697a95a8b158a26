
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <span>

#include "lockstep/data/fashion_mnist.h"
#include "tests/data/idx_files.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImages = "t10k-images-idx3-ubyte";
constexpr const char* kLabels = "t10k-labels-idx1-ubyte";
constexpr const char* kHowToGetIt = "apt-get install dataset-fashion-mnist";

// Two test images of 2 x 1 pixels.
void write_valid(const TemporaryFolder& folder) {
  folder.write(kImages, idx_header({2, 2, 1}) + "abcd");
  folder.write(kLabels, idx_header({2}) + std::string{3, 9});
}

TEST(FashionMnistFiles, ReadsTheRealData) {
  EnvironmentVariable unset("LOCKSTEP_DATA", nullptr);
  const MnistFiles train = load_fashion_mnist(MnistPart::train);
  const MnistFiles test = load_fashion_mnist(MnistPart::test);
  for (const auto& [part, count] : {std::pair(&train, 60'000), std::pair(&test, 10'000)}) {
    EXPECT_EQ(part->count, count);
    EXPECT_EQ(part->rows, 28);
    EXPECT_EQ(part->cols, 28);
    ASSERT_EQ(part->pixels.size(), static_cast<std::size_t>(count) * 28 * 28);
    ASSERT_EQ(part->labels.size(), static_cast<std::size_t>(count));
    // The classes are of equal size.
    for (std::uint8_t label = 0; label < 10; ++label) {
      EXPECT_EQ(std::ranges::count(part->labels, label), count / 10);
    }
  }
  // The data set's first labels, and its mean, which everyone who normalizes it uses: 0.2860.
  EXPECT_TRUE(std::ranges::equal(std::span(train.labels).first(10), std::array{9, 0, 0, 3, 0, 2, 7, 2, 5, 5}));
  const double sum = std::accumulate(train.pixels.begin(), train.pixels.end(), 0.0);
  EXPECT_NEAR(sum / 255 / static_cast<double>(train.pixels.size()), 0.2860, 5e-5);
}

TEST(FashionMnistFiles, FindsTheFolder) {
  TemporaryFolder given, variable;
  {
    EnvironmentVariable set("LOCKSTEP_DATA", variable.path().c_str());
    EXPECT_EQ(find_fashion_mnist(given.path()), given.path());
    EXPECT_EQ(find_fashion_mnist(), variable.path());
  }
  EnvironmentVariable unset("LOCKSTEP_DATA", nullptr);
  EXPECT_EQ(find_fashion_mnist(), fs::path("/usr/share/datasets/fashion-mnist"));
}

TEST(FashionMnistFiles, SaysHowToGetTheData) {
  TemporaryFolder folder;
  EXPECT_ERROR(find_fashion_mnist(folder / "none"), "there is no folder \"" + (folder / "none").string() + "\"");
  EXPECT_ERROR(find_fashion_mnist(folder / "none"), kHowToGetIt);
  EXPECT_ERROR(find_fashion_mnist(folder.write("file", "")), "there is no folder");
  for (const char* name : {"/no/such/folder", ""}) {
    EnvironmentVariable variable("LOCKSTEP_DATA", name);
    EXPECT_ERROR(load_fashion_mnist(MnistPart::train), fmt::format("no folder \"{}\" (LOCKSTEP_DATA)", name));
  }
  EXPECT_ERROR(load_fashion_mnist(MnistPart::train, folder.path()),
               "has neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz");
  folder.write(kImages, idx_header({2, 2, 1}) + "abcd");
  EXPECT_ERROR(load_fashion_mnist(MnistPart::test, folder.path()), "neither t10k-labels-idx1-ubyte nor");
  EXPECT_ERROR(load_fashion_mnist(MnistPart::test, folder.path()), kHowToGetIt);
}

TEST(FashionMnistFiles, ReadsImagesOfAnySizeGzippedOrNot) {
  TemporaryFolder plain, packed;
  write_valid(plain);
  packed.write(std::string(kImages) + ".gz", gzip(plain.read(kImages)));
  packed.write(std::string(kLabels) + ".gz", gzip(plain.read(kLabels)));
  for (const TemporaryFolder* folder : {&plain, &packed}) {
    const MnistFiles files = load_fashion_mnist(MnistPart::test, folder->path());
    EXPECT_EQ(files.count, 2);
    EXPECT_EQ(files.rows, 2);
    EXPECT_EQ(files.cols, 1);
    EXPECT_EQ(files.pixels, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd'}));
    EXPECT_EQ(files.labels, (std::vector<std::uint8_t>{3, 9}));
  }
}

TEST(FashionMnistFiles, RefusesFilesThatDoNotFitTogether) {
  TemporaryFolder folder;
  const auto load = [&] { load_fashion_mnist(MnistPart::test, folder.path()); };
  write_valid(folder);
  folder.write(kLabels, idx_header({3}) + std::string{1, 2, 3});
  EXPECT_ERROR(load(), (folder / kLabels).string() + " has 3 labels, " + (folder / kImages).string() + " has 2");
  folder.write(kLabels, idx_header({2}) + std::string{3, 10});
  EXPECT_ERROR(load(), (folder / kLabels).string() + ": label 1 is 10, expected 0 to 9");
  folder.write(kLabels, idx_header({2, 1}) + std::string{3, 9});
  EXPECT_ERROR(load(), "has 2 dimensions, expected 1, for labels");
  write_valid(folder);
  folder.write(kImages, idx_header({2}) + "ab");
  EXPECT_ERROR(load(), "has 1 dimensions, expected 3, for images");
  folder.write(kImages, idx_header({2, 0, 1}));
  EXPECT_ERROR(load(), "has 2 images of 0 x 1 pixels");
  folder.write(kImages, idx_header({0, 2, 1}));
  EXPECT_ERROR(load(), "has 0 images");
  folder.write(kImages, "");
  EXPECT_ERROR(load(), (folder / kImages).string() + ": too short");
}

TEST(FashionMnistFiles, SurvivesMutatedFiles) {
  TemporaryFolder folder;
  write_valid(folder);
  const std::string names[] = {kImages, kLabels};
  const std::string valid[] = {folder.read(kImages), folder.read(kLabels)};
  int read = 0, refused = 0;
  for (unsigned round = 0; round < 1'000; ++round) {
    std::mt19937 random(round);
    const unsigned which = random() % 2;
    std::string file = valid[which];
    file[random() % file.size()] = static_cast<char>(random() % 12);
    folder.write(names[which], file);
    try {
      const MnistFiles files = load_fashion_mnist(MnistPart::test, folder.path());
      ASSERT_EQ(files.pixels.size(), static_cast<std::size_t>(files.count * files.rows * files.cols));
      ASSERT_EQ(files.labels.size(), static_cast<std::size_t>(files.count));
      ASSERT_LT(std::ranges::max(files.labels), 10);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
    folder.write(names[which], valid[which]);
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace lockstep
