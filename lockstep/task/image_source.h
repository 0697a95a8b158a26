// Internal: pictures in folders, one for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/task/data_schema.h"
#include "lockstep/task/data_source.h"

namespace lockstep {

// Class of each example of a part, before limits; empty for regression.
struct PartLabels {
  std::vector<std::int64_t> train, validation;
};
// Cuts the parts to limit_train and limit_validation. `data.description` must exist already, because this adds to it.
void limit_parts(DataSource& data, const DataOptions& options, const PartLabels& labels);

// "cat 300, dog 300", the examples of each class in both parts.
std::string classes_text(const DataSource& data);

// ", augmented (light)", or empty.
std::string augmented_text(const DataOptions& options);

// Whether mean or stddev is given; throws if they do not fit pictures with this many channels.
bool has_given_normalization(const DataOptions& options, std::int64_t channels, const std::string& where);
// Returns one number for each channel, from one for each or one for all.
std::vector<double> for_channels(const std::vector<double>& given, std::int64_t channels);

DataSource open_images(const std::filesystem::path& path, const DataOptions& options);
// Opens the pictures of a folder with a folder for each class, of any other folder, or of one file.
DataExamples open_image_examples(const std::filesystem::path& path, const DataSchema& schema,
                                 const ExampleOptions& options);

}  // namespace lockstep
