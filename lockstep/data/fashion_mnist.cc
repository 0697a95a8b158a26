#include "lockstep/data/dataset.h"

#include "lockstep/base/sha256.h"

namespace lockstep {

FashionMnist::FashionMnist(MnistFiles files) : files_(std::move(files)) {}

Example FashionMnist::get(std::int64_t index) const {
  Example one = batch(std::span(&index, 1), {});
  return {one[0].reshape({1, files_.rows, files_.cols}), one[1].reshape({})};
}

std::string FashionMnist::sha256() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(files_.pixels)));
  hash.update(std::as_bytes(std::span(files_.labels)));
  return hash.hex();
}

Example FashionMnist::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  for (std::int64_t index : indices) {
    check(index >= 0 && index < files_.count, "fashion-mnist: example {} is out of range [0, {})", index, files_.count);
  }
  auto n = static_cast<std::int64_t>(indices.size());
  Tensor images = Tensor::host({n, 1, files_.rows, files_.cols});
  Tensor labels = Tensor::host({n}, DType::i64);
  const std::int64_t pixels = files_.rows * files_.cols;
  const auto source = [&](std::int64_t i) {
    return files_.pixels.data() + indices[static_cast<std::size_t>(i)] * pixels;
  };
  auto* image = images.view().as<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    // A shuffled image lies anywhere in memory: waiting for it would take most of the time.
    constexpr std::int64_t kAhead = 4, kLine = 64;
    if (i + kAhead < n) {
      for (std::int64_t p = 0; p < pixels; p += kLine) __builtin_prefetch(source(i + kAhead) + p);
    }
    const std::uint8_t* const shades = source(i);
    for (std::int64_t p = 0; p < pixels; ++p) *image++ = static_cast<float>(shades[p]) / 255.0f;
    const auto index = static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]);
    labels.view().as<std::int64_t>()[i] = files_.labels[index];
  }
  return {images, labels};
}

}  // namespace lockstep
