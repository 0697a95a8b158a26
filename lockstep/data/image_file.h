// Internal: an open file that may be a picture, and file names in messages.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/data/image.h"

namespace lockstep {

// The name with hexadecimal escapes for control characters and for bytes that are not UTF-8.
std::string printable_name(std::string_view name);

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
