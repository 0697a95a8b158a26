#include "lockstep/data/image_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_error.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/formats/image_file.h"
#include "lockstep/device/topology.h"

namespace lockstep {
namespace {

using FileId = std::pair<dev_t, ino_t>;

bool hidden(std::string_view name) { return name.starts_with('.'); }

// Lists the files in a class folder and in its subfolders, sorted by the bytes of their paths.
class FolderScan {
 public:
  // `skipped` gets the folders that cannot be read; if it is null, such a folder is an error.
  FolderScan(const std::filesystem::path& root, std::vector<SkippedImage>* skipped) : skipped_(skipped) { enter(root); }
  FolderScan() = default;
  std::vector<std::string> files_of(const std::filesystem::path& folder, const std::string& class_name) {
    files_.clear();
    scan(folder, class_name, {});
    std::sort(files_.begin(), files_.end());  // by bytes: std::string compares as unsigned
    return std::move(files_);
  }

 private:
  // Adds the folder to above_. Returns whether it was there already, because a link leads to a folder that it lies in.
  bool enter(const std::filesystem::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) return false;  // reading it says why
    const FileId id{status.st_dev, status.st_ino};
    const bool known = std::find(above_.begin(), above_.end(), id) != above_.end();
    above_.push_back(id);
    return known;
  }
  void refuse(const std::string& name, const std::string& reason) {
    if (skipped_ == nullptr) fail("image folder: {}", reason);
    skipped_->push_back({name, reason});
  }
  void scan(const std::filesystem::path& folder, const std::string& name, const std::string& prefix) {
    const std::size_t depth = above_.size();
    if (enter(folder)) {
      refuse(name, fmt::format("{} is a link to a folder that it lies in", printable_name(folder.native())));
    } else {
      std::error_code error;
      std::filesystem::directory_iterator entry(folder, error);
      while (!error && entry != std::filesystem::directory_iterator()) {
        const std::string file = entry->path().filename().native();
        std::error_code ignored;  // opening it says why
        if (!hidden(file)) {
          if (entry->is_directory(ignored)) {
            scan(entry->path(), name + "/" + file, prefix + file + "/");
          } else {
            files_.push_back(prefix + file);
          }
        }
        entry.increment(error);
      }
      if (error) refuse(name, fmt::format("cannot read {}: {}", printable_name(folder.native()), error.message()));
    }
    above_.resize(depth);
  }

  std::vector<SkippedImage>* skipped_ = nullptr;
  std::vector<FileId> above_;
  std::vector<std::string> files_;
};

struct Inspected {
  ImageInfo info;
  std::string error;
};

// Inspects the files on several threads. Without skip_broken, stops at an error; the results then hold the first error
// in order, because files are begun in order and each begun file is finished.
std::vector<Inspected> inspect(const std::filesystem::path& folder, std::span<const std::string> files,
                               const ImageFolderOptions& options, int threads) {
  std::vector<Inspected> results(files.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stop = false;
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
  const auto look = [&] {
    std::size_t i;
    while (!stop && (i = next++) < files.size()) {
      try {
        const ImageFile file(folder / files[i]);
        results[i].info = file.probe();
        if (options.skip_broken) file.decode({.channels = 0, .max_pixels = options.max_pixels});
      } catch (const Error& error) {
        results[i].error = error.what();
        if (!options.skip_broken) stop = true;
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
        stop = true;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t useful = std::min(static_cast<std::size_t>(threads), files.size() / 8 + 1);
    while (others.size() + 1 < useful) others.emplace_back(look);
    look();
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

std::string extent_text(std::int64_t least, std::int64_t most) {
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

}  // namespace

ImageFolder::ImageFolder(std::filesystem::path root, const ImageFolderOptions& options)
    : root_(std::move(root)), max_pixels_(options.max_pixels) {
  check(options.channels == 0 || options.channels == 1 || options.channels == 3,
        "image folder: {} channels, expected 1 (gray), 3 (color), or 0 (as the pictures)", options.channels);
  check(options.threads >= 0, "image folder: {} threads, expected at least 0", options.threads);
  const std::string shown = printable_name(root_.native());
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().native();
    if (!hidden(name) && entry->is_directory(ignored)) classes_.push_back(name);
  }
  check(!error, "image folder: cannot read {}: {}", shown, error.message());
  check(!classes_.empty(), "image folder: {} holds no folders, expected one for each class", shown);
  std::sort(classes_.begin(), classes_.end());

  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  sizes_ = {kMost, 0, kMost, 0};
  FolderScan scan(root_, options.skip_broken ? &skipped_ : nullptr);
  bool color = false;
  for (const std::string& name : classes_) {
    color |= add_class(scan.files_of(root_ / name, name), options);
    check_option(size() > class_starts_.back() || options.allow_empty, "allow_empty",
                 "image folder: class {} has no pictures in {}{}; allow_empty permits it", printable_name(name), shown,
                 skipped_.empty() ? "" : fmt::format(" ({} broken ones were skipped)", skipped_.size()));
    class_starts_.push_back(size());
  }
  check(size() > 0, "image folder: {} holds no pictures", shown);
  files_.shrink_to_fit();
  starts_.shrink_to_fit();
  channels_ = options.channels != 0 ? options.channels : color ? 3 : 1;
}

bool ImageFolder::add_class(const std::vector<std::string>& files, const ImageFolderOptions& options) {
  const std::string& class_name = classes_[class_starts_.size() - 1];
  constexpr std::size_t kMostThreads = 8, kBlock = 65536;
  const int threads =
      options.threads != 0 ? options.threads : static_cast<int>(std::min(available_cpus().size(), kMostThreads));
  bool color = false;
  for (std::size_t first = 0; first < files.size(); first += kBlock) {
    const std::span<const std::string> block = std::span(files).subspan(first, std::min(kBlock, files.size() - first));
    const std::vector<Inspected> results = inspect(root_ / class_name, block, options, threads);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const auto& [info, error] = results[i];
      if (!error.empty()) {
        if (!options.skip_broken) {
          fail_option({"skip_broken", "max_pixels"}, "image folder: {}; skip_broken leaves such files out", error);
        }
        skipped_.push_back({class_name + "/" + block[i], error});
        continue;
      }
      files_ += block[i];
      starts_.push_back(files_.size());
      color |= info.channels != 1;
      sizes_ = {std::min(sizes_.min_height, info.height), std::max(sizes_.max_height, info.height),
                std::min(sizes_.min_width, info.width), std::max(sizes_.max_width, info.width)};
    }
  }
  return color;
}

std::int64_t ImageFolder::label(std::int64_t index) const {
  check(index >= 0 && index < size(), "image folder: example {} is out of range [0, {})", index, size());
  return std::upper_bound(class_starts_.begin(), class_starts_.end(), index) - class_starts_.begin() - 1;
}

std::string ImageFolder::name(std::int64_t index) const {
  const std::string& class_name = classes_[static_cast<std::size_t>(label(index))];
  const auto i = static_cast<std::size_t>(index);
  return class_name + "/" + files_.substr(starts_[i], starts_[i + 1] - starts_[i]);
}

std::vector<std::int64_t> ImageFolder::class_counts() const {
  std::vector<std::int64_t> counts;
  for (std::size_t c = 0; c < classes_.size(); ++c) counts.push_back(class_starts_[c + 1] - class_starts_[c]);
  return counts;
}

Example ImageFolder::get(std::int64_t index) const {
  const std::int64_t number = label(index);
  Tensor image = ImageFile(path(index)).decode({.channels = channels_, .max_pixels = max_pixels_});
  return {std::move(image), Tensor::from(std::span(&number, 1), Shape{})};
}

Example ImageFolder::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  check(!indices.empty(), "image folder: an empty batch");
  std::vector<Example> examples;
  for (const std::int64_t index : indices) {
    examples.push_back(get(index));
    const Tensor &first = examples[0][0], &image = examples.back()[0];
    check(
        image.shape() == first.shape(),
        "image folder: {} has {} x {} pixels, {} has {} x {}, expected one size in a batch: apply a transform, such as "
        "Resize and CenterCrop",
        printable_name(name(indices[0])), first.size(2), first.size(1), printable_name(name(index)), image.size(2),
        image.size(1));
  }
  return default_collate(examples);
}

std::string ImageFolder::str() const {
  constexpr std::size_t kMostNamed = 10;
  const std::vector<std::int64_t> counts = class_counts();
  std::string of;
  if (counts.size() <= kMostNamed) {
    for (std::size_t c = 0; c < counts.size(); ++c)
      of += fmt::format("{}{} {}", c == 0 ? "" : ", ", printable_name(classes_[c]), counts[c]);
  } else {
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    of = extent_text(*least, *most) + " each";
  }
  std::string text = fmt::format("{} pictures in {} classes ({}), {} x {} pixels, {}", size(), classes_.size(), of,
                                 extent_text(sizes_.min_width, sizes_.max_width),
                                 extent_text(sizes_.min_height, sizes_.max_height), channels_ == 1 ? "gray" : "color");
  if (!skipped_.empty()) text += fmt::format("; {} broken files skipped", skipped_.size());
  return text;
}

std::vector<std::string> files_below(const std::filesystem::path& folder) { return FolderScan().files_of(folder, ""); }

bool is_image_folder(const std::filesystem::path& path) {
  constexpr int kMostFiles = 100;
  std::error_code error;
  for (std::filesystem::directory_iterator folder(path, error), end; !error && folder != end; folder.increment(error)) {
    std::error_code ignored;
    if (hidden(folder->path().filename().native()) || !folder->is_directory(ignored)) continue;
    int files = 0;
    for (std::filesystem::recursive_directory_iterator file(folder->path(), ignored), last;
         !ignored && file != last && files < kMostFiles; file.increment(ignored)) {
      std::error_code other;
      if (!file->is_regular_file(other)) continue;
      ++files;
      try {
        probe_image(file->path());
        return true;
      } catch (const Error&) {  // not this one
      }
    }
  }
  return false;
}

}  // namespace lockstep
