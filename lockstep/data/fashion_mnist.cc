#include "lockstep/data/fashion_mnist.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/data/formats/idx.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackageFolder = "/usr/share/datasets/fashion-mnist";
constexpr std::string_view kHowToGetIt =
    "Get the data with `apt-get install dataset-fashion-mnist`, or give a folder that has its four IDX files";
constexpr int kClasses = 10;

fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code error;
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(path, error)) return path;
  }
  fail("fashion-mnist: {} has neither {} nor {}.gz. {}", folder.string(), name, name, kHowToGetIt);
}

IdxArray read_array(const fs::path& path, std::size_t rank, std::string_view what) {
  IdxArray array = read_idx(path);
  check(array.dims.size() == rank, "{}: has {} dimensions, expected {}, for {}", path.string(), array.dims.size(), rank,
        what);
  return array;
}

}  // namespace

fs::path find_fashion_mnist(const fs::path& folder) {
  const std::optional<std::string> variable = environment("LOCKSTEP_DATA");
  const bool given = !folder.empty();
  const fs::path found = given ? folder : fs::path(variable.value_or(kPackageFolder));
  std::error_code error;
  check(fs::is_directory(found, error), "fashion-mnist: there is no folder \"{}\"{}. {}", found.string(),
        !given && variable ? " (LOCKSTEP_DATA)" : "", kHowToGetIt);
  return found;
}

bool is_mnist(const fs::path& folder) {
  std::error_code unknown;
  for (const std::string_view name : kMnistFiles) {
    for (const char* end : {"", ".gz"}) {
      if (fs::exists(folder / (std::string(name) + end), unknown)) return true;
    }
  }
  return false;
}

MnistFiles load_fashion_mnist(MnistPart part, const fs::path& folder) {
  const fs::path found = find_fashion_mnist(folder);
  const std::string prefix = part == MnistPart::train ? "train" : "t10k";
  const fs::path image_file = find_file(found, prefix + "-images-idx3-ubyte");
  const fs::path label_file = find_file(found, prefix + "-labels-idx1-ubyte");

  IdxArray images = read_array(image_file, 3, "images: count, rows, columns");
  check(std::ranges::all_of(images.dims, [](std::int64_t dim) { return dim > 0; }),
        "{}: has {} images of {} x {} pixels, expected at least one of each", image_file.string(), images.dims[0],
        images.dims[1], images.dims[2]);
  IdxArray labels = read_array(label_file, 1, "labels: count");
  check(labels.dims[0] == images.dims[0], "{} has {} labels, {} has {} images, expected as many", label_file.string(),
        labels.dims[0], image_file.string(), images.dims[0]);
  const auto bad = std::ranges::find_if(labels.data, [](std::uint8_t label) { return label >= kClasses; });
  if (bad != labels.data.end()) {
    fail("{}: label {} is {}, expected 0 to {}", label_file.string(), bad - labels.data.begin(), *bad, kClasses - 1);
  }
  return {images.dims[0], images.dims[1], images.dims[2], std::move(images.data), std::move(labels.data)};
}

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
  auto* image = images.data_ptr<float>();
  auto* label = labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    // Prefetches, because shuffled images lie anywhere in memory and waiting for them would take most of the time.
    constexpr std::int64_t kAhead = 4, kLine = 64;
    if (i + kAhead < n) {
      for (std::int64_t p = 0; p < pixels; p += kLine) __builtin_prefetch(source(i + kAhead) + p);
    }
    const std::uint8_t* const shades = source(i);
    for (std::int64_t p = 0; p < pixels; ++p) *image++ = static_cast<float>(shades[p]) / 255.0f;
    const auto index = static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]);
    label[i] = files_.labels[index];
  }
  return {images, labels};
}

}  // namespace lockstep
