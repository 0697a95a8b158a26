// A folder of pictures with a folder for each class, as torchvision's ImageFolder:
//
//   photos/cat/1.jpg  photos/cat/more/2.png  photos/dog/3.jpg
//
//   ImageFolder photos("photos");
//   for (auto& name : photos.classes()) ...                     // cat, dog
//   Tensor image = photos.get(0)[0], label = photos.get(0)[1];  // u8 [channels, height, width], i64 []
//
// Pictures of several sizes do not stack to a batch: apply a transform that gives them one size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/formats/image.h"

namespace LOCKSTEP_API lockstep {

struct ImageFolderOptions {
  // Channels of all pictures. 1: gray. 3: color. 0: 1 if all pictures are gray, otherwise 3.
  std::int64_t channels = 0;
  // Leaves out files that cannot be read as pictures: see skipped(). Decodes each picture once to find them.
  bool skip_broken = false;
  std::int64_t max_pixels = 0;  // as ImageOptions::max_pixels
  // A class without pictures is an error unless this is set.
  bool allow_empty = false;
  // Number of threads that inspect the files before the constructor returns. 0: one for each processor that this
  // process may use, at most eight.
  int threads = 0;
};

struct SkippedImage {
  std::string name;  // as ImageFolder::name
  std::string reason;
};

// The constructor lists the files and reads the header of each, so that a file that is not a picture is an error at
// once; get() reads and decodes a picture and keeps nothing. Classes are the folders in `root`, sorted by the bytes of
// their names. The pictures of a class, with those in its subfolders, are sorted by the bytes of their paths, so the
// order is the same on every file system. Ignores hidden files and folders (.name) and files outside class folders.
// Links are followed; a folder that contains itself is an error. A link without a target counts as a broken picture.
class ImageFolder : public Dataset {
 public:
  explicit ImageFolder(std::filesystem::path root, const ImageFolderOptions& options = {});
  std::int64_t size() const override { return static_cast<std::int64_t>(starts_.size()) - 1; }
  using Dataset::get;
  // {u8 [channels(), height, width], label i64 []}
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;

  const std::vector<std::string>& classes() const { return classes_; }
  std::vector<std::int64_t> class_counts() const;
  std::int64_t channels() const { return channels_; }
  std::int64_t label(std::int64_t index) const;
  // The path below the root: "cat/more/2.png".
  std::string name(std::int64_t index) const;
  std::filesystem::path path(std::int64_t index) const { return root_ / name(index); }
  // Files and folders that skip_broken left out, class by class.
  const std::vector<SkippedImage>& skipped() const { return skipped_; }

  struct Sizes {
    std::int64_t min_height = 0, max_height = 0, min_width = 0, max_width = 0;
  };
  // Smallest and largest extents over all pictures.
  const Sizes& sizes() const { return sizes_; }
  // "300 pictures in 3 classes (cat 100, dog 100, owl 100), 24 to 48 x 24 to 40 pixels, color", with names escaped.
  std::string str() const;

 private:
  // Returns whether one of the pictures has color.
  bool add_class(const std::vector<std::string>& files, const ImageFolderOptions& options);

  std::filesystem::path root_;
  std::int64_t channels_ = 3;
  std::int64_t max_pixels_;
  std::vector<std::string> classes_;
  std::vector<std::int64_t> class_starts_{0};  // index of the first picture of each class, then size()
  // Path of picture i in its class: files_[starts_[i], starts_[i + 1]); one string is compact for millions of files.
  std::string files_;
  std::vector<std::uint64_t> starts_{0};
  std::vector<SkippedImage> skipped_;
  Sizes sizes_;
};

// Returns the paths of the files in a folder and its subfolders, relative to it, sorted by bytes: "more/2.png". Ignores
// hidden files and folders and follows links. Throws for a folder that contains itself or cannot be read.
std::vector<std::string> files_below(const std::filesystem::path& folder);

// Whether a subfolder of `path` has a JPEG or PNG picture, by content, among its first 100 files. Never throws.
bool is_image_folder(const std::filesystem::path& path);

}  // namespace lockstep
