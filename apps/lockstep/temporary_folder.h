// The folder for files that the user did not ask for.
#pragma once

#include <filesystem>

namespace lockstep::app {

// Returns the folder that TMPDIR names, or /tmp. Throws if it is not a folder.
std::filesystem::path temporary_folder();

}  // namespace lockstep::app
