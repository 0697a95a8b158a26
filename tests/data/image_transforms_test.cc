// Transforms of pictures: what they do, pixel by pixel, and hashes of their bits, which every machine gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/base/sha256.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/data/transforms/color_jitter.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/flip.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/random_erasing.h"
#include "lockstep/data/transforms/resize.h"
#include "lockstep/data/transforms/rotation.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using PixelBytes = std::vector<std::uint8_t>;
using PixelFloats = std::vector<float>;

Tensor bytes_image(const PixelBytes& values, Shape shape) {
  Tensor image = Tensor::host(shape, DType::u8);
  std::copy(values.begin(), values.end(), image.data_ptr<std::uint8_t>());
  return image;
}

// A picture whose elements 0, 1, 2, ... tell where they come from.
Tensor counting(std::int64_t channels, std::int64_t height, std::int64_t width) {
  PixelBytes values(static_cast<std::size_t>(channels * height * width));
  std::iota(values.begin(), values.end(), std::uint8_t{0});
  return bytes_image(values, {channels, height, width});
}

// A picture of smooth shades and noise.
Tensor painted(std::int64_t number, std::int64_t channels, std::int64_t height, std::int64_t width) {
  Tensor image = Tensor::host({channels, height, width}, DType::u8);
  auto* out = image.data_ptr<std::uint8_t>();
  const RandomKey key = random_key(7, {static_cast<std::uint64_t>(number)});
  for (std::int64_t i = 0; i < image.numel(); ++i) {
    const std::int64_t x = i % width, y = i / width % height, c = i / width / height;
    out[i] = static_cast<std::uint8_t>(3 * x + 5 * y + 80 * c + random_bits(key, static_cast<std::uint64_t>(i)) % 32);
  }
  return image;
}

Tensor as_floats(const Tensor& image) { return ToFloat()(image); }

PixelBytes pixels_of(const Tensor& image) { return image.to_vector<std::uint8_t>(); }

void add_to_hash(Sha256& hash, const Tensor& t) {
  const std::size_t size = t.dtype() == DType::u8 ? 1 : t.dtype() == DType::f32 ? 4 : 8;
  const void* data = t.dtype() == DType::u8    ? static_cast<const void*>(t.data_ptr<const std::uint8_t>())
                     : t.dtype() == DType::f32 ? static_cast<const void*>(t.data_ptr<const float>())
                                               : static_cast<const void*>(t.data_ptr<const std::int64_t>());
  hash.update(std::span(static_cast<const std::byte*>(data), size * static_cast<std::size_t>(t.numel())));
}

// The start of the hash of what the transform makes of pictures of several sizes and both types, under several keys.
std::string hash_of(const ImageTransform& transform) {
  Sha256 hash;
  const ImageSize sizes[] = {{33, 47}, {64, 40}, {128, 130}};
  for (std::uint64_t i = 0; i < 6; ++i) {
    const ImageSize size = sizes[i % 3];
    const Tensor image = painted(static_cast<std::int64_t>(i), i < 3 ? 3 : 1, size.height, size.width);
    for (const Tensor& x : {image, as_floats(image)}) add_to_hash(hash, transform(x, random_key(1, {i})));
  }
  return hash.hex().substr(0, 12);
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(ImageTransforms, EveryMachineGetsTheseBits) {
  const RandomResizedCropOptions tight{.min_scale = 0.2, .max_scale = 0.5};
  const std::vector<std::pair<ImageTransform, std::string>> expected{
      {Resize(24), "ece6c1a6ef06"},
      {Resize({50, 70}), "986855750aa1"},
      {Resize(29, {.interpolation = Interpolation::nearest}), "a94a34aa1eae"},
      {ResizeAndCrop({20, 33}), "30fdd2cd9f60"},
      {CenterCrop(40), "72bb329eab44"},
      {RandomCrop(32, {.padding = 4}), "dca6922f9d46"},
      {RandomResizedCrop(24, tight), "225aa6e08e7f"},
      {RandomHorizontalFlip(), "d46435ea29f6"},
      {RandomVerticalFlip(), "14afb8001e63"},
      {RandomRotation(30), "5aea6447ac82"},
      {RandomRotation(10, 80, {.interpolation = Interpolation::bilinear, .fill = 1}), "de1cab3d1f9f"},
      {ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.3}), "c533a065bb45"},
      {RandomErasing({.p = 0.8}), "10c6c1258a66"},
      {Normalize({0.485}, {0.229}), "14a79e041c1d"},
      {augmentation(Augment::none, {32, 32}), "3ed02cb4f57c"},
      {augmentation(Augment::light, {32, 32}), "519ac779f7ea"},
      {augmentation(Augment::standard, {32, 32}), "cbf7e01dd73b"},
  };
  for (const auto& [transform, hash] : expected) EXPECT_EQ(hash_of(transform), hash) << transform.str();
}

TEST(Resize, HalvesWithPillowsTriangle) {
  // The triangle is four pixels wide and cut at the border: 3/7, 3/7, 1/7.
  const Tensor row = bytes_image({0, 70, 140, 210}, {1, 1, 4});
  EXPECT_EQ(pixels_of(Resize({1, 2})(row)), (PixelBytes{50, 160}));
  const Tensor column = bytes_image({0, 70, 140, 210}, {1, 4, 1});
  EXPECT_EQ(pixels_of(Resize({2, 1})(column)), (PixelBytes{50, 160}));
}

Tensor scattered(std::int64_t height, std::int64_t width) {
  Tensor image = Tensor::host({1, height, width}, DType::u8);
  auto* out = image.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < image.numel(); ++i) out[i] = static_cast<std::uint8_t>((37 * i * i + 11 * i) % 251);
  return image;
}

// The hashes are those of Pillow 9.4, Image.resize() of these pictures.
TEST(Resize, BytesAreThoseOfPillow) {
  const std::vector<std::pair<ImageSize, ImageSize>> sizes{
      {{13, 17}, {7, 5}},     {{13, 17}, {20, 31}}, {{64, 48}, {64, 20}},     {{64, 48}, {30, 48}},
      {{100, 150}, {33, 41}}, {{3, 2}, {50, 1}},    {{200, 300}, {224, 224}},
  };
  Sha256 bilinear, nearest;
  for (const auto& [from, to] : sizes) {
    const Tensor image = scattered(from.height, from.width);
    add_to_hash(bilinear, Resize(to)(image));
    add_to_hash(nearest, Resize(to, {.interpolation = Interpolation::nearest})(image));
  }
  EXPECT_EQ(bilinear.hex().substr(0, 12), "bf1a61d6f0a4");
  EXPECT_EQ(nearest.hex().substr(0, 12), "190ed4871171");
}

// PyTorch 1.13: interpolate(x, (3, 4), mode="bilinear", antialias=True).
TEST(Resize, FloatsAreThoseOfPyTorch) {
  const PixelFloats expected{84.136f, 115.4057f, 123.5886f, 165.551f, 161.4603f, 136.6933f,
                             105.56f, 139.1587f, 153.2177f, 172.04f,  113.5429f, 203.6395f};
  const PixelFloats found = Resize({3, 4})(as_floats(scattered(5, 7))).to_vector<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(255 * found[i], expected[i], 1e-3) << i;
}

TEST(Resize, EnlargesBetweenMiddles) {
  const Tensor row = bytes_image({0, 100}, {1, 1, 2});
  EXPECT_EQ(pixels_of(Resize({1, 4})(row)), (PixelBytes{0, 25, 75, 100}));
  EXPECT_EQ(pixels_of(Resize({1, 4}, {.interpolation = Interpolation::nearest})(row)), (PixelBytes{0, 0, 100, 100}));
}

TEST(Resize, KeepsConstantPicturesAndTheirType) {
  for (std::int64_t size : {1, 3, 17, 64, 200}) {
    const Tensor gray = Resize(size)(bytes_image(PixelBytes(37 * 53, 255), {1, 37, 53}));
    EXPECT_EQ(gray.shape(), Shape({1, size, size * 53 / 37}));
    for (std::uint8_t x : pixels_of(gray)) ASSERT_EQ(x, 255);
    const Tensor floats = Resize(size)(as_floats(bytes_image(PixelBytes(37 * 53, 255), {1, 37, 53})));
    for (float x : floats.to_vector<float>()) ASSERT_NEAR(x, 1, 1e-5);
  }
  const Tensor same = counting(3, 4, 4);
  EXPECT_EQ(Resize(4)(same).data_ptr<const std::uint8_t>(), same.data_ptr<const std::uint8_t>());
}

TEST(Resize, BytesAndFloatsAgree) {
  const Tensor image = painted(0, 3, 61, 83);
  const PixelBytes bytes = pixels_of(Resize({30, 90})(image));
  const PixelFloats floats = Resize({30, 90})(as_floats(image)).to_vector<float>();
  for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_NEAR(bytes[i], 255 * floats[i], 1.01);
}

TEST(ResizeAndCrop, TakesTheLargestWindowOfTheRatio) {
  const Tensor image = counting(1, 2, 6);
  EXPECT_EQ(pixels_of(ResizeAndCrop(2)(image)), (PixelBytes{2, 3, 8, 9}));
  EXPECT_EQ(pixels_of(ResizeAndCrop({2, 4})(image)), (PixelBytes{1, 2, 3, 4, 7, 8, 9, 10}));
  EXPECT_EQ(ResizeAndCrop({5, 1})(image).shape(), Shape({1, 5, 1}));
}

TEST(CenterCrop, CutsAndPads) {
  EXPECT_EQ(pixels_of(CenterCrop(2)(counting(1, 4, 4))), (PixelBytes{5, 6, 9, 10}));
  EXPECT_EQ(pixels_of(CenterCrop({1, 4})(counting(1, 1, 2))), (PixelBytes{0, 0, 1, 0}));
  // torchvision rounds the corner to even: (5 - 2) / 2 = 1.5 is 2, (3 - 2) / 2 = 0.5 is 0.
  EXPECT_EQ(pixels_of(CenterCrop({1, 2})(counting(1, 1, 5))), (PixelBytes{2, 3}));
  EXPECT_EQ(pixels_of(CenterCrop({1, 2})(counting(1, 1, 3))), (PixelBytes{0, 1}));
}

TEST(RandomCrop, ReachesEveryWindowOfThePaddedPicture) {
  const Tensor image = bytes_image({1, 2, 3, 4}, {1, 2, 2});
  std::set<PixelBytes> seen;
  for (std::uint64_t i = 0; i < 300; ++i)
    seen.insert(pixels_of(RandomCrop(2, {.padding = 1, .fill = 9})(image, {1, i})));
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_TRUE(seen.contains(PixelBytes{9, 9, 9, 1}));
  EXPECT_TRUE(seen.contains(PixelBytes{1, 2, 3, 4}));
  EXPECT_TRUE(seen.contains(PixelBytes{4, 9, 9, 9}));
  EXPECT_ERROR(RandomCrop(3)(image),
               "RandomCrop: the picture has 2 x 2 pixels with its padding, expected at least 3 x 3");
  EXPECT_EQ(RandomCrop(3, {.pad_if_needed = true})(image).shape(), Shape({1, 3, 3}));
  EXPECT_ERROR(RandomCrop(2, {.padding = 1, .fill = 0.5})(image), "fill 0.5, expected 0 to 255 for a u8 picture");
}

TEST(RandomResizedCrop, StaysWithinScaleAndRatio) {
  // In a picture whose two channels tell column and row, a nearest crop shows its window.
  Tensor image = Tensor::host({2, 100, 120}, DType::u8);
  auto* out = image.data_ptr<std::uint8_t>();
  for (std::int64_t y = 0; y < 100; ++y) {
    for (std::int64_t x = 0; x < 120; ++x) {
      out[y * 120 + x] = static_cast<std::uint8_t>(x);
      out[(100 + y) * 120 + x] = static_cast<std::uint8_t>(y);
    }
  }
  const RandomResizedCrop crop(100, {.min_scale = 0.25, .max_scale = 0.5, .interpolation = Interpolation::nearest});
  double least = 1, most = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const PixelBytes b = pixels_of(crop(image, random_key(3, {i})));
    const double width = b[99] - b[0] + 1, height = b[2 * 100 * 100 - 1] - b[100 * 100] + 1;
    const double part = width * height / 12000, ratio = width / height;
    least = std::min(least, part), most = std::max(most, part);
    ASSERT_GT(ratio, 0.70);
    ASSERT_LT(ratio, 1.40);
  }
  EXPECT_GT(least, 0.23);
  EXPECT_LT(least, 0.28);
  EXPECT_GT(most, 0.46);
  EXPECT_LT(most, 0.53);
  // No window of this ratio fits: the largest centered one.
  EXPECT_EQ(pixels_of(RandomResizedCrop({1, 2}, {.min_scale = 1, .min_ratio = 2, .max_ratio = 2})(counting(1, 1, 6))),
            (PixelBytes{2, 3}));
}

TEST(Flips, MirrorHalfOfThePictures) {
  const Tensor image = counting(2, 2, 2);
  EXPECT_EQ(pixels_of(RandomHorizontalFlip(1)(image)), (PixelBytes{1, 0, 3, 2, 5, 4, 7, 6}));
  EXPECT_EQ(pixels_of(RandomVerticalFlip(1)(image)), (PixelBytes{2, 3, 0, 1, 6, 7, 4, 5}));
  EXPECT_EQ(pixels_of(RandomHorizontalFlip(0)(image)), pixels_of(image));
  int flipped = 0;
  for (std::uint64_t i = 0; i < 400; ++i)
    flipped += pixels_of(RandomHorizontalFlip()(image, random_key(0, {i})))[0] == 1;
  EXPECT_NEAR(flipped, 200, 50);
  EXPECT_ERROR(RandomHorizontalFlip(1.5), "RandomHorizontalFlip: probability 1.5, expected 0 to 1");
}

TEST(RandomRotation, TurnsCounterclockwise) {
  const Tensor image = counting(1, 2, 2);
  EXPECT_EQ(pixels_of(RandomRotation(90, 90)(image)), (PixelBytes{1, 3, 0, 2}));
  EXPECT_EQ(pixels_of(RandomRotation(-90, -90)(image)), (PixelBytes{2, 0, 3, 1}));
  EXPECT_EQ(pixels_of(RandomRotation(180, 180, {.interpolation = Interpolation::bilinear})(image)),
            (PixelBytes{3, 2, 1, 0}));
  EXPECT_EQ(pixels_of(RandomRotation(0)(image)), pixels_of(image));
  // The corners of a white square become free.
  const PixelBytes turned =
      pixels_of(RandomRotation(45, 45, {.fill = 7})(bytes_image(PixelBytes(100, 255), {1, 10, 10})));
  EXPECT_EQ(turned[0], 7);
  EXPECT_EQ(turned[55], 255);
}

TEST(ColorJitter, ChangesOnlyWhatItIsAskedFor) {
  const Tensor image = painted(1, 3, 9, 9);
  EXPECT_EQ(pixels_of(ColorJitter({})(image)), pixels_of(image));
  // A shade of gray has no hue and no saturation.
  const Tensor gray = bytes_image(PixelBytes(27, 100), {3, 3, 3});
  EXPECT_EQ(pixels_of(ColorJitter({.saturation = 1, .hue = 0.5})(gray, {1, 2})), pixels_of(gray));
  EXPECT_EQ(pixels_of(ColorJitter({.contrast = 1})(gray, {1, 2})), pixels_of(gray));
  const PixelBytes brighter = pixels_of(ColorJitter({.brightness = 0.5})(gray, {1, 2}));
  EXPECT_NE(brighter[0], 100);
  for (std::uint8_t x : brighter) EXPECT_EQ(x, brighter[0]);
  // Shifts of a whole circle meet every hue: red becomes no darker and no paler.
  const Tensor red = bytes_image({200, 50, 50}, {3, 1, 1});
  std::set<PixelBytes> hues;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const PixelBytes b = pixels_of(ColorJitter({.hue = 0.5})(red, random_key(0, {i})));
    EXPECT_EQ(*std::max_element(b.begin(), b.end()), 200);
    EXPECT_EQ(*std::min_element(b.begin(), b.end()), 50);
    hues.insert(b);
  }
  EXPECT_GT(hues.size(), 40u);
  EXPECT_ERROR(ColorJitter({.hue = 0.7}), "ColorJitter: hue 0.7, expected 0 to 0.5");
  EXPECT_ERROR(ColorJitter({.hue = 0.1})(counting(2, 2, 2)), "the picture has 2 channels, expected 1 or 3");
}

TEST(RandomErasing, PaintsARectangleOfTheArea) {
  const Tensor image = bytes_image(PixelBytes(40 * 40, 1), {1, 40, 40});
  int untouched = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const PixelBytes b = pixels_of(RandomErasing()(image, random_key(0, {i})));
    const auto gone = std::count(b.begin(), b.end(), std::uint8_t{0});
    untouched += gone == 0;
    if (gone == 0) continue;
    ASSERT_GT(gone, 0.02 * 1600 * 0.7);
    ASSERT_LT(gone, 0.33 * 1600 * 1.15);
  }
  EXPECT_NEAR(untouched, 100, 35);
}

TEST(Normalize, BytesAndFloatsHaveTheSameBits) {
  const Tensor image = painted(0, 3, 8, 8);
  const Normalize normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  const PixelFloats direct = normalize(image).to_vector<float>(),
                    through = normalize(as_floats(image)).to_vector<float>();
  EXPECT_EQ(direct, through);
  EXPECT_FLOAT_EQ(direct[0], (static_cast<float>(pixels_of(image)[0]) / 255.f - 0.485f) / 0.229f);
  EXPECT_ERROR(normalize(counting(1, 2, 2)), "Normalize: 3 numbers for a picture of 1 channels");
  EXPECT_ERROR(Normalize({0.5}, {0}), "channel 0 has mean 0.5 and deviation 0");
}

// Pictures of one size with labels, i % 3.
std::shared_ptr<TensorDataset> pictures(std::int64_t count, std::int64_t size = 12) {
  std::vector<Tensor> images;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) images.push_back(painted(i, 3, size, size)), labels.push_back(i % 3);
  return std::make_shared<TensorDataset>(std::vector<Tensor>{stack_parts(images), Tensor::from(labels, {count})});
}

TEST(ChannelStatistics, AreExactForAnyOrderAndNumberOfThreads) {
  const auto data = pictures(20);
  const ChannelStatistics one = channel_statistics(*data), four = channel_statistics(*data, {.threads = 4});
  EXPECT_EQ(one.mean, four.mean);
  EXPECT_EQ(one.std, four.std);
  ASSERT_EQ(one.mean.size(), 3u);
  for (std::int64_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < 20; ++i) {
      const PixelBytes b = pixels_of(data->get(i)[0]);
      for (std::size_t k = 0; k < 144; ++k, ++n) {
        const double x = b[static_cast<std::size_t>(c) * 144 + k] / 255.;
        sum += x, squares += x * x;
      }
    }
    const double mean = sum / static_cast<double>(n);
    EXPECT_NEAR(one.mean[static_cast<std::size_t>(c)], mean, 1e-12);
    EXPECT_NEAR(one.std[static_cast<std::size_t>(c)], std::sqrt(squares / static_cast<double>(n) - mean * mean), 1e-12);
  }
  const ChannelStatistics floats = channel_statistics(data | ToFloat());
  EXPECT_NEAR(floats.mean[0], one.mean[0], 1e-6);
  EXPECT_NEAR(floats.std[0], one.std[0], 1e-6);
  EXPECT_ERROR(channel_statistics(data | Normalize({0}, {0.001}), {.threads = 3}), "expected -16 to 16");
}

// ---------------------------------------------------------------------------------------------------------------------

std::string hash_of_epochs(const std::shared_ptr<const Dataset>& data, const DataLoaderOptions& options) {
  DataLoader loader(data, options);
  Sha256 hash;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Example& batch : loader) {
      for (const Tensor& part : batch) add_to_hash(hash, part);
    }
  }
  return hash.hex();
}

TEST(TransformedDataset, HasTheSameBitsForAnyNumberOfWorkers) {
  const auto data = std::make_shared<TransformedDataset>(pictures(23) | augmentation(Augment::standard, {10, 10}) |
                                                         RandomRotation(20) | Normalize({0.5}, {0.25}));
  DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 5, .batch_transform = MixUp({.classes = 3})};
  options.workers = 0;
  const std::string expected = hash_of_epochs(data, options);
  for (int workers : {1, 8}) {
    options.workers = workers;
    EXPECT_EQ(hash_of_epochs(data, options), expected) << workers;
  }
  options.seed = 6;
  EXPECT_NE(hash_of_epochs(data, options), expected);
}

TEST(TransformedDataset, DiffersBetweenEpochsAndKeepsLabels) {
  DataLoader loader(pictures(8) | RandomCrop(6) | ToFloat(), {.batch_size = 8, .seed = 1});
  std::vector<PixelFloats> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Example& batch : loader) {
      epochs.push_back(batch[0].to_vector<float>());
      EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 1}));
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(TransformedDataset, EqualTransformsOfAChainDrawTheirOwnNumbers) {
  const Compose twice({RandomHorizontalFlip(), RandomHorizontalFlip()});
  const Tensor image = counting(1, 1, 2);
  int flipped = 0;
  for (std::uint64_t i = 0; i < 200; ++i) flipped += pixels_of(twice(image, random_key(0, {i})))[0] == 1;
  EXPECT_NEAR(flipped, 100, 35);  // never if they flipped together
  EXPECT_EQ(twice.str(), "RandomHorizontalFlip(0.5) | RandomHorizontalFlip(0.5)");
  EXPECT_EQ((pictures(1) | Resize(4) | ToFloat()).str(), "Resize(4) | ToFloat()");
}

TEST(TransformedDataset, TakesFunctionsAndNamesWrongPictures) {
  const auto inverted =
      pictures(2) | ImageTransform("Negative", [](const Tensor& x, RandomKey) { return ToFloat()(x); });
  EXPECT_EQ(inverted.get(1)[0].dtype(), DType::f32);
  EXPECT_ERROR(Resize(4)(zeros({2, 2})), "Resize: the picture is ");
  EXPECT_ERROR(Resize(0), "Resize: size 0 x 0, expected 1 to 65535 each");
  EXPECT_ERROR(Resize(4, {.interpolation = Interpolation::area}), "interpolation area, expected bilinear or nearest");
  EXPECT_ERROR(parse_augment("heavy"), "augment \"heavy\", expected none, light, or standard");
}

// ---------------------------------------------------------------------------------------------------------------------

Example small_batch() {
  return {tensor({{0.0, 0.0}, {10.0, 20.0}, {100.0, 200.0}}), Tensor::from(std::vector<std::int64_t>{0, 1, 2}, {3})};
}

TEST(MixUp, MixesNeighborsAndTheirLabels) {
  double sum = 0, extreme = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Example mixed = MixUp({.classes = 4, .alpha = 0.2})(small_batch(), random_key(0, {i}));
    const PixelFloats x = mixed[0].to_vector<float>(), p = mixed[1].to_vector<float>();
    const float part = p[0];
    ASSERT_NEAR(x[0], (1 - part) * 100, 1e-4);
    ASSERT_NEAR(x[3], part * 20, 1e-4);
    ASSERT_NEAR(p[2], 1 - part, 1e-6);
    ASSERT_EQ(p[3], 0);
    sum += part;
    extreme += part < 0.1f || part > 0.9f;
  }
  EXPECT_NEAR(sum / 400, 0.5, 0.07);
  EXPECT_NEAR(extreme / 400, 0.69, 0.1);  // of Beta(0.2, 0.2), by its distribution function
}

TEST(MixUp, RefusesWhatItCannotMix) {
  EXPECT_ERROR(MixUp({}), "MixUp: 0 classes, expected at least 1");
  EXPECT_ERROR(MixUp({.classes = 2})(small_batch(), {}), "MixUp: label 2 is 2, expected 0 to 1");
  Example bytes{Tensor::host({2, 3}, DType::u8), Tensor::host({2}, DType::i64)};
  EXPECT_ERROR(MixUp({.classes = 2})(bytes, {}), "put ToFloat or Normalize before");
  EXPECT_ERROR(CutMix({.classes = 3})(small_batch(), {}), "CutMix: the pictures are");
}

TEST(CutMix, AreasDecideTheLabels) {
  Tensor x = Tensor::host({2, 1, 8, 10});
  auto* data = x.data_ptr<float>();
  std::fill_n(data, 80, 0.f);
  std::fill_n(data + 80, 80, 1.f);
  const Example batch{x, Tensor::from(std::vector<std::int64_t>{0, 1}, {2})};
  int mixed_batches = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Example mixed = CutMix({.classes = 2})(batch, random_key(0, {i}));
    const PixelFloats y = mixed[0].to_vector<float>(), p = mixed[1].to_vector<float>();
    const float strange = std::accumulate(y.begin(), y.begin() + 80, 0.f) / 80;
    ASSERT_NEAR(p[1], strange, 1e-6);
    ASSERT_NEAR(p[0] + p[1], 1, 1e-6);
    ASSERT_NEAR(p[2], strange, 1e-6);
    mixed_batches += strange > 0;
  }
  EXPECT_GT(mixed_batches, 70);
}

TEST(MixUp, EveryMachineGetsTheseBits) {
  Sha256 hash;
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (double alpha : {0.01, 0.2, 1.0, 5.0}) {
      for (const Tensor& t : MixUp({.classes = 3, .alpha = alpha})(small_batch(), random_key(2, {i})))
        add_to_hash(hash, t);
    }
  }
  EXPECT_EQ(hash.hex().substr(0, 12), "379fa946ab84");
}

TEST(MixUp, RowsOfABatchDoNotDependOnTheProcesses) {
  const auto data = std::make_shared<TransformedDataset>(pictures(9) | RandomHorizontalFlip() | ToFloat());
  DataLoaderOptions options{.batch_size = 5, .shuffle = true, .seed = 3, .batch_transform = MixUp({.classes = 3})};
  std::vector<PixelFloats> whole, halves(2);
  DataLoader all(data, options);
  for (const Example& batch : all) whole.push_back(batch[1].to_vector<float>());
  for (std::int64_t rank : {0, 1}) {
    options.rows = [rank](std::int64_t n) { return std::pair(rank * n / 2, (rank + 1) * n / 2); };
    DataLoader part(data, options);
    std::size_t number = 0;
    for (const Example& batch : part) {
      for (float p : batch[1].to_vector<float>()) halves[number].push_back(p);
      ++number;
    }
  }
  EXPECT_EQ(halves, whole);
}

TEST(MixUp, ABatchTransformKeepsTheRows) {
  DataLoader loader(pictures(4), {.batch_size = 4, .batch_transform = [](const Example& batch, RandomKey) {
                                    return Example{batch[0].narrow(0, 0, 2)};
                                  }});
  EXPECT_ERROR(loader.begin(), "data loader: batch_transform returned");
}

TEST(MixUp, CrossEntropyLearnsFromItsProbabilities) {
  const Example mixed = MixUp({.classes = 4})(small_batch(), {1, 1});
  Tensor logits = rand({3, 4});
  logits.set_requires_grad(true);
  const Tensor loss = cross_entropy(logits, mixed[1]);
  loss.backward();
  // The gradient of a row: (softmax - probabilities) / rows.
  const PixelFloats x = logits.to_vector<float>(), p = mixed[1].to_vector<float>(),
                    dx = logits.grad().to_vector<float>();
  for (std::size_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (std::size_t k = 0; k < 4; ++k) sum += std::exp(static_cast<double>(x[row * 4 + k]));
    for (std::size_t k = row * 4; k < row * 4 + 4; ++k) EXPECT_NEAR(dx[k], (std::exp(x[k]) / sum - p[k]) / 3, 1e-6);
  }
}

TEST(PlainExp, IsNearlyExact) {
  double worst = 0;
  for (int i = -7000; i <= 7000; ++i) {
    const double x = i * 0.0987;
    worst = std::max(worst, std::abs(plain_exp(x) / std::exp(x) - 1));
  }
  EXPECT_LT(worst, 5e-16);
  EXPECT_EQ(plain_exp(0), 1);
  EXPECT_EQ(plain_exp(-1e9), 0);
}

}  // namespace
}  // namespace lockstep
