// Internal: an open file that may be a picture.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/formats/image.h"

namespace lockstep {

class ImageFile {
 public:
  // Throws if the path is missing, unreadable, or not a regular file. Errors call it by its path, escaped.
  explicit ImageFile(const std::filesystem::path& path);
  // Reads a few KB, and more only if the header is longer.
  ImageInfo probe() const;
  Tensor decode(const ImageOptions& options) const;

 private:
  std::string read(std::size_t most) const;
  std::string name_;
  FileDescriptor file_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
