#include "apps/lockstep/temporary_folder.h"

#include <system_error>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::app {

std::filesystem::path temporary_folder() {
  const auto given = environment("TMPDIR");
  const std::filesystem::path folder = given && !given->empty() ? *given : "/tmp";
  std::error_code unknown;
  check(std::filesystem::is_directory(folder, unknown),
        "TMPDIR is {}, and {} is no folder: expected one for temporary files", given ? "'" + *given + "'" : "not set",
        folder.string());
  return folder;
}

}  // namespace lockstep::app
