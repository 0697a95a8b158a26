// Splits by a hash of each example's name or content: an example stays in its part when others are added or removed,
// and on every machine.
//
//   if (in_validation("cats/7.jpg", 0.1)) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// True for about `share` of all names or contents: if the first 53 bits of its SHA-256, as a fraction, are below
// `share`. A larger share only adds examples. Equal examples are in the same part. Throws unless 0 <= share < 1.
bool in_validation(std::string_view name_or_content, double share);
bool in_validation(std::span<const std::byte> content, double share);

// The numbers of the examples in each part, in ascending order.
struct SplitRows {
  std::vector<std::int64_t> train, validation;
};

struct DigestOptions {
  // Hash the bytes of the files, too; it takes as long as reading them.
  bool contents = false;
};
// SHA-256, 64 hexadecimal digits, of the names (relative to `root`) and sizes of files, in any order. It identifies the
// data of a training run. Throws if a file cannot be read.
std::string data_digest(const std::filesystem::path& root, const std::vector<std::filesystem::path>& files,
                        const DigestOptions& options = {});
// The same for files below `root`, by their names relative to it. A million paths take half a gigabyte.
std::string data_digest_of_names(const std::filesystem::path& root, std::vector<std::string> names,
                                 const DigestOptions& options = {});

}  // namespace lockstep
