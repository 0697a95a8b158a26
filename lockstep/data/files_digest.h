// One hash for the files that a training run reads: the entry "data" of its recipe.
//
//   const std::string digest = files_digest("photos", files_below("photos"));
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

struct DigestOptions {
  // Hashes the contents of the files, too, which takes as long as reading them.
  bool contents = false;
};
// SHA-256, 64 hexadecimal digits, of the names (relative to `root`) and sizes of files, in any order. It identifies the
// data of a training run. Throws if a file cannot be read.
std::string files_digest(const std::filesystem::path& root, const std::vector<std::filesystem::path>& files,
                         const DigestOptions& options = {});
// The same for files below `root`, given by their names relative to it, because a million paths take half a gigabyte.
std::string files_digest_of_names(const std::filesystem::path& root, std::vector<std::string> names,
                                  const DigestOptions& options = {});

}  // namespace lockstep
