#include "lockstep/task/resized_pictures.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {

std::uint64_t memory_for_pictures() {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  return std::min(kMost, memory_left() / 15 * 2);  // memory_left() has three quarters of it
}

ResizedPictures::ResizedPictures(std::shared_ptr<const Dataset> inner, const ImageFolder::Sizes& sizes,
                                 std::int64_t channels, ImageSize size, std::uint64_t room)
    : inner_(std::move(inner)), resize_(augmentation(Augment::none, size)),
      unchanged_(sizes.min_height == size.height && sizes.max_height == size.height && sizes.min_width == size.width &&
                 sizes.max_width == size.width),
      slot_of_(static_cast<std::size_t>(inner_->size())) {
  const std::int64_t fit = static_cast<std::int64_t>(room) / (channels * size.height * size.width);
  const std::int64_t slots = std::min(fit, inner_->size());
  pixels_ = Tensor::host({slots, channels, size.height, size.width}, DType::u8);
  labels_.resize(static_cast<std::size_t>(slots));
}

Example ResizedPictures::get(std::int64_t index) const {
  check(index >= 0 && index < size(), "pictures: example {} is out of range [0, {})", index, size());
  const auto bytes = static_cast<std::size_t>(pixels_.size(1) * pixels_.size(2) * pixels_.size(3));
  std::uint8_t* const pixels = pixels_.data_ptr<std::uint8_t>();
  std::atomic<std::int64_t>& slot_of = slot_of_[static_cast<std::size_t>(index)];
  if (const auto filled = static_cast<std::size_t>(slot_of.load(std::memory_order_acquire)); filled > 0) {
    Tensor picture = Tensor::host({pixels_.size(1), pixels_.size(2), pixels_.size(3)}, DType::u8);
    std::memcpy(picture.data_ptr<std::uint8_t>(), pixels + (filled - 1) * bytes, bytes);
    return {picture, Tensor::from({labels_[filled - 1]}, Shape{})};
  }
  Example example = inner_->get(index);
  example.at(0) = resize_(example[0]);
  if (taken_ >= pixels_.size(0)) return example;
  const std::int64_t slot = taken_++;
  if (slot >= pixels_.size(0)) return example;
  std::memcpy(pixels + static_cast<std::size_t>(slot) * bytes, example[0].data_ptr<std::uint8_t>(), bytes);
  labels_[static_cast<std::size_t>(slot)] = example.at(1).item<std::int64_t>();
  slot_of.store(slot + 1, std::memory_order_release);
  return example;
}

}  // namespace lockstep
