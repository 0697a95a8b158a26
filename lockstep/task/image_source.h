// Internal: pictures in folders, one for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/task/data_schema.h"
#include "lockstep/task/data_source.h"

namespace lockstep {

// Of all examples of a part, by class; empty for regression.
struct PartLabels {
  std::vector<std::int64_t> train, validation;
};
// Cuts the parts of data that are described already to what the options allow.
void limit_parts(DataSource& data, const DataOptions& options, const PartLabels& labels);

// "cat 300, dog 300", the examples of each class in both parts.
std::string classes_text(const DataSource& data);

// ", augmented (light)", or empty.
std::string augmented_text(const DataOptions& options);

// Whether mean or stddev is given; throws if they do not fit pictures with so many channels.
bool has_given_normalization(const DataOptions& options, std::int64_t channels, const std::string& where);
// The numbers for each of the channels.
std::vector<double> for_channels(const std::vector<double>& given, std::int64_t channels);

DataSource open_images(const std::filesystem::path& path, const DataOptions& options);
// Pictures of a folder with a folder for each class, of a folder, or of one file.
DataExamples open_image_examples(const std::filesystem::path& path, const DataSchema& schema,
                                 const ExampleOptions& options);

}  // namespace lockstep
