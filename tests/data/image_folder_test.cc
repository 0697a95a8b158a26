#include "lockstep/data/image_folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/data_loader.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

std::string flat_png(int value, std::int64_t height = 2, std::int64_t width = 3, std::int64_t channels = 1) {
  const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height * width),
                                         static_cast<std::uint8_t>(value));
  return encode_png(Tensor::from(std::span(pixels), {channels, height, width}));
}

std::vector<std::string> names_of(const ImageFolder& folder) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < folder.size(); ++i) names.push_back(folder.name(i));
  return names;
}

using Names = std::vector<std::string>;
using Counts = std::vector<std::int64_t>;

TEST(ImageFolderTest, FoldersAreClassesInTheOrderOfBytes) {
  const TemporaryFolder folder;
  folder.write("b/2.png", flat_png(4));
  folder.write("b/10.png", flat_png(3));
  folder.write("a/x/y.png", flat_png(2));
  folder.write("a/Z.jpg", flat_png(1));  // content decides, not the name
  folder.write("B/\xc3\xa4.png", flat_png(0));
  folder.write("a/.hidden.png", "no picture");
  folder.write(".git/config", "no picture");
  folder.write("readme.txt", "beside the classes");
  const ImageFolder data(folder.path());
  EXPECT_EQ(data.classes(), (Names{"B", "a", "b"}));
  EXPECT_EQ(data.class_counts(), (Counts{1, 2, 2}));
  EXPECT_EQ(names_of(data), (Names{"B/\xc3\xa4.png", "a/Z.jpg", "a/x/y.png", "b/10.png", "b/2.png"}));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const Example example = data.get(i);
    EXPECT_EQ(example[0].to_vector<std::uint8_t>(), std::vector<std::uint8_t>(6, static_cast<std::uint8_t>(i)));
    EXPECT_EQ(example[1].item<std::int64_t>(), data.label(i));
  }
  EXPECT_EQ(data.label(3), 2);
  EXPECT_EQ(data.str(), "5 pictures in 3 classes (B 1, a 2, b 2), 3 x 2 pixels, gray");
  EXPECT_ERROR(data.get(5), "example 5 is out of range [0, 5)");
}

TEST(ImageFolderTest, OneColorPictureMakesAllColor) {
  const TemporaryFolder folder;
  folder.write("a/1.png", flat_png(7));
  folder.write("a/2.jpg", encode_jpeg(Tensor::from(std::vector<std::uint8_t>(48, 9), {3, 4, 4})));
  EXPECT_EQ(ImageFolder(folder.path()).channels(), 3);
  EXPECT_EQ(ImageFolder(folder.path()).get(0)[0].shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(ImageFolder(folder.path(), {.channels = 1}).get(1)[0].shape(), (Shape{1, 4, 4}));
  EXPECT_EQ(ImageFolder(folder.path()).str(), "2 pictures in 1 classes (a 2), 3 to 4 x 2 to 4 pixels, color");
  EXPECT_TRUE(is_image_folder(folder.path()));
  EXPECT_FALSE(is_image_folder(folder / "a"));
  DataLoader loader(ImageFolder(folder.path()), {.batch_size = 2});
  EXPECT_ERROR(*loader.begin(), "a/1.png has 3 x 2 pixels, a/2.jpg has 4 x 4, expected one size in a batch");
}

TEST(ImageFolderTest, AnyNumberOfWorkersMakesTheSameBatches) {
  const TemporaryFolder folder;
  for (int i = 0; i < 40; ++i) folder.write("c" + std::to_string(i % 3) + "/" + std::to_string(i), flat_png(i));
  const auto data = std::make_shared<const ImageFolder>(folder.path(), ImageFolderOptions{.threads = 3});
  std::vector<std::uint8_t> first;
  for (const int workers : {0, 1, 8}) {
    DataLoader loader(data, {.batch_size = 7, .shuffle = true, .seed = 5, .workers = workers});
    std::vector<std::uint8_t> all;
    for (Example& batch : loader) {
      for (const std::uint8_t x : batch[0].to_vector<std::uint8_t>()) all.push_back(x);
    }
    if (workers == 0) first = all;
    EXPECT_EQ(all.size(), 40U * 6);
    EXPECT_EQ(all, first) << workers;
  }
}

TEST(ImageFolderTest, BrokenFilesAreErrorsOrNamed) {
  const TemporaryFolder folder;
  folder.write("a/1.png", flat_png(1));
  folder.write("a/2.png", flat_png(1).substr(0, 60));
  folder.write("a/3.jpg", "GIF89a");
  folder.write("a/bad\xff.png", "");
  std::filesystem::create_symlink("nowhere", folder / "a/link.png");
  std::filesystem::create_directory_symlink("..", folder / "a/up");
  EXPECT_ERROR(ImageFolder(folder.path()), "a/up is a link to a folder that it lies in");
  std::filesystem::remove(folder / "a/up");
  EXPECT_ERROR(ImageFolder(folder.path(), {.threads = 2}), "a/3.jpg: it is a GIF picture");

  std::filesystem::create_directory_symlink("..", folder / "a/up");
  const ImageFolder data(folder.path(), {.skip_broken = true, .threads = 2});
  EXPECT_EQ(names_of(data), Names{"a/1.png"});
  ASSERT_EQ(data.skipped().size(), 5U);
  Names skipped;
  for (const SkippedImage& image : data.skipped()) skipped.push_back(image.name);
  EXPECT_EQ(skipped, (Names{"a/up", "a/2.png", "a/3.jpg", "a/bad\xff.png", "a/link.png"}));
  EXPECT_NE(data.skipped()[3].reason.find("a/bad\\xff.png: it is empty"), std::string::npos);
  EXPECT_NE(data.skipped()[4].reason.find("link.png: No such file"), std::string::npos);
  EXPECT_NE(data.str().find("; 5 broken files skipped"), std::string::npos);
}

TEST(ImageFolderTest, FoldersWithoutPicturesAreErrors) {
  const TemporaryFolder folder;
  EXPECT_ERROR(ImageFolder(folder / "none"), "No such file or directory");
  EXPECT_ERROR(ImageFolder(folder.path()), "holds no folders, expected one for each class");
  folder.write("a/1.png", flat_png(1));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_ERROR(ImageFolder(folder.path()), "class empty has no pictures");
  const ImageFolder data(folder.path(), {.allow_empty = true});
  EXPECT_EQ(data.class_counts(), (Counts{1, 0}));
  EXPECT_EQ(data.label(0), 0);
  EXPECT_ERROR(ImageFolder(folder.path(), {.channels = 2}), "2 channels, expected 1 (gray), 3 (color)");
}

}  // namespace
}  // namespace lockstep
