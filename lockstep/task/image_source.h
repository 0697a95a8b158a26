// Internal: pictures in folders, one for each class.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/task/data_schema.h"
#include "lockstep/task/data_source.h"

namespace lockstep {

// "cat 300, dog 300", the examples of each class in both parts.
std::string classes_text(const DataSource& data);

DataSource open_images(const std::filesystem::path& path, const DataOptions& options);
// Pictures of a folder with a folder for each class, of a folder, or of one file.
DataExamples open_image_examples(const std::filesystem::path& path, const DataSchema& schema);

}  // namespace lockstep
