#include "lockstep/task/resized_pictures.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/data/transforms/augmentation.h"

namespace lockstep {
namespace {

// Gray pictures of 4 x 6 pixels, with labels.
struct Pictures : Dataset {
  mutable int decoded = 0;
  std::int64_t size() const override { return 4; }
  using Dataset::get;
  Example get(std::int64_t i) const override {
    ++decoded;
    std::vector<std::uint8_t> pixels(24);
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<std::uint8_t>(50 * i + k * k % 40);
    return {Tensor::from(pixels, {1, 4, 6}), Tensor::from({10 + i}, Shape{})};
  }
};

constexpr ImageFolder::Sizes kSizes{4, 4, 6, 6};
std::vector<std::uint8_t> pixels_of(const Example& example) { return example.at(0).to_vector<std::uint8_t>(); }

TEST(ResizedPictures, DecodesOnceWhatHasRoom) {
  const auto pictures = std::make_shared<Pictures>();
  const ResizedPictures two(pictures, kSizes, 1, {2, 3}, std::uint64_t{2} * 6);
  std::vector<Example> first;
  for (const std::int64_t i : {3, 1, 0}) first.push_back(two.get(i));
  EXPECT_EQ(pictures->decoded, 3);
  std::size_t at = 0;
  for (const std::int64_t i : {3, 1, 0}) {
    const Example again = two.get(i);
    EXPECT_EQ(pixels_of(again), pixels_of(first[at++]));
    EXPECT_EQ(pixels_of(again), augmentation(Augment::none, {2, 3})(Pictures().get(i)[0]).to_vector<std::uint8_t>());
    EXPECT_EQ(again[1].item<std::int64_t>(), 10 + i);
  }
  EXPECT_EQ(pictures->decoded, 4) << "the third one had no room";
}

TEST(ResizedPictures, GivesReceiptsThePicturesAsTheyWere) {
  const auto pictures = std::make_shared<Pictures>();
  const ResizedPictures resized(pictures, kSizes, 1, {2, 3}, 1000), same(pictures, kSizes, 1, {4, 6}, 1000);
  EXPECT_FALSE(resized.unchanged());
  EXPECT_EQ(pixels_of(resized.raw(2)), pixels_of(pictures->get(2)));
  EXPECT_TRUE(same.unchanged());
  EXPECT_EQ(pixels_of(same.raw(2)), pixels_of(pictures->get(2)));
  const int decoded = pictures->decoded;
  same.raw(2);
  same.get(2);
  EXPECT_EQ(pictures->decoded, decoded);
}

}  // namespace
}  // namespace lockstep
