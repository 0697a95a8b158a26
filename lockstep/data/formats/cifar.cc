#include "lockstep/data/formats/cifar.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/data/formats/byte_source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPictureBytes = 3 * 32 * 32;
// 100,000 pictures; the real files have at most 50,000.
constexpr std::size_t kLargestCifarFile = 100'000 * (kPictureBytes + 2);

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<fs::path> training_files(const fs::path& folder) {
  if (is_there(folder / "train.bin")) return {folder / "train.bin"};
  std::vector<fs::path> files;
  for (int i = 1; is_there(folder / fmt::format("data_batch_{}.bin", i)); ++i) {
    files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  }
  // Throws if a file in between is missing, so that no training data are lost silently.
  constexpr std::size_t kMostBatches = 100;
  for (std::size_t i = files.size() + 2; i <= kMostBatches; ++i) {
    check(!is_there(folder / fmt::format("data_batch_{}.bin", i)),
          "{}: has data_batch_{}.bin, and no data_batch_{}.bin, expected all from 1 on", folder.string(), i,
          files.size() + 1);
  }
  return files;
}

CifarPart read_part(const std::vector<fs::path>& files, std::size_t labels, std::size_t classes) {
  const std::size_t record = labels + kPictureBytes;
  std::string bytes;
  for (const fs::path& file : files) {
    const std::string one = read_file(file, kLargestCifarFile);
    check(!one.empty() && one.size() % record == 0,
          "{}: {} bytes, expected a multiple of {} (a label and 3 x 32 x 32 bytes)", file.string(), one.size(), record);
    for (std::size_t at = labels - 1; at < one.size(); at += record) {
      const auto label = static_cast<unsigned char>(one[at]);
      check(label < classes, "{}: picture {} has label {}, expected 0 to {}", file.string(), at / record, label,
            classes - 1);
    }
    bytes += one;
  }
  const auto count = static_cast<std::int64_t>(bytes.size() / record);
  const std::shared_ptr<const ByteSource> source = bytes_in_memory(std::move(bytes));
  const std::string name = files[0].string();
  return {FileArray(source, {.type = ElementType::u8, .dims = {count, 3, 32, 32}, .offset = labels, .stride = record},
                    name),
          FileArray(source, {.type = ElementType::u8, .dims = {count}, .offset = labels - 1, .stride = record}, name)};
}

// Returns the lines that are not empty.
std::vector<std::string> read_names(const fs::path& path) {
  std::vector<std::string> names;
  const std::string text = read_file(path, std::size_t{1} << 20);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name.ends_with('\r')) name.pop_back();
    if (!name.empty()) names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

std::vector<std::string> class_names(const fs::path& file, std::size_t classes) {
  std::vector<std::string> names;
  if (is_there(file)) {
    names = read_names(file);
    check(names.size() == classes, "{}: {} names, expected {}", file.string(), names.size(), classes);
  } else {
    for (std::size_t c = 0; c < classes; ++c) names.push_back(std::to_string(c));
  }
  return names;
}

}  // namespace

bool is_cifar(const fs::path& folder) {
  return is_there(folder / "data_batch_1.bin") || is_there(folder / "train.bin");
}

CifarFiles read_cifar(const fs::path& folder) {
  const std::vector<fs::path> files = training_files(folder);
  check(!files.empty(), "{}: neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)", folder.string());
  const bool hundred = files[0].filename() == "train.bin";
  // CIFAR-100 has a coarse label before the fine one.
  const std::size_t labels = hundred ? 2 : 1, classes = hundred ? 100 : 10;
  const fs::path test = folder / (hundred ? "test.bin" : "test_batch.bin");
  CifarFiles read{.train = read_part(files, labels, classes),
                  .test = {},
                  .class_names = class_names(folder / (hundred ? "fine_label_names.txt" : "batches.meta.txt"), classes),
                  .files = files};
  if (is_there(test)) {
    read.test = read_part({test}, labels, classes);
    read.files.push_back(test);
  }
  return read;
}

}  // namespace lockstep
