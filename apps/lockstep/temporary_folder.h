// Where files go that nobody asked for.
#pragma once

#include <filesystem>

namespace lockstep::app {

// The folder that TMPDIR names, or /tmp. Throws if it is no folder.
std::filesystem::path temporary_folder();

}  // namespace lockstep::app
