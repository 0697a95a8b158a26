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
  // Of all pictures. 1: gray. 3: color. 0: 1 if all pictures are gray, otherwise 3.
  std::int64_t channels = 0;
  // Leaves out what cannot be read as a picture: see skipped(). It decodes each picture once to find out.
  bool skip_broken = false;
  std::int64_t max_pixels = 0;  // as ImageOptions::max_pixels
  // A class without pictures is an error unless this is set.
  bool allow_empty = false;
  // The threads that look at the files, before the constructor returns. 0: one for each processor that this process may
  // use, at most eight.
  int threads = 0;
};

struct SkippedImage {
  std::string name;  // as ImageFolder::name
  std::string reason;
};

// The constructor lists the files and reads each one's header, so that a file that is no picture is an error at once;
// get() reads and decodes, and keeps nothing. Classes are the folders in `root`, sorted by the bytes of their names,
// and so are the pictures of a class, by their paths in it: the order is the same on every file system. Folders in a
// class belong to it. Hidden files and folders (.name) and files beside the classes do not count. Links are followed; a
// folder that contains itself is an error. A link whose target is missing counts as a broken picture.
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
  // What skip_broken left out, by class and name.
  const std::vector<SkippedImage>& skipped() const { return skipped_; }

  struct Sizes {
    std::int64_t min_height = 0, max_height = 0, min_width = 0, max_width = 0;
  };
  // Over all pictures.
  const Sizes& sizes() const { return sizes_; }
  // "300 pictures in 3 classes (cat 100, dog 100, owl 100), 24 x 24 to 48 x 40 pixels, color", with names escaped.
  std::string str() const;

 private:
  // Returns whether one of the pictures has color.
  bool add_class(const std::vector<std::string>& files, const ImageFolderOptions& options);

  std::filesystem::path root_;
  std::int64_t channels_ = 3;
  std::int64_t max_pixels_;
  std::vector<std::string> classes_;
  std::vector<std::int64_t> class_starts_{0};  // the first picture of each class, and the number of pictures
  // Compact, for millions of files: picture i of a class is files_[starts_[i], starts_[i + 1]), its path in the class.
  std::string files_;
  std::vector<std::uint64_t> starts_{0};
  std::vector<SkippedImage> skipped_;
  Sizes sizes_;
};

// The files in a folder and in the folders in it, by their paths below it, sorted by their bytes: "more/2.png". Hidden
// ones do not count, links are followed, and a folder that contains itself or cannot be read is an error.
std::vector<std::string> files_below(const std::filesystem::path& folder);

// Whether a folder in `path` has a JPEG or PNG picture, by content, among its first files. Never throws.
bool is_image_folder(const std::filesystem::path& path);

}  // namespace lockstep
