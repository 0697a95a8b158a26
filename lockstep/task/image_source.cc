#include "lockstep/task/image_source.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/option_error.h"
#include "lockstep/data/files_digest.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/data/formats/image_file.h"
#include "lockstep/data/hash_split.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/device/topology.h"
#include "lockstep/task/resized_pictures.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Pictures of a folder whose labels are class indices of another folder, that of training.
class RelabeledFolder : public Dataset {
 public:
  RelabeledFolder(std::shared_ptr<const ImageFolder> folder, const std::vector<std::string>& classes,
                  const std::string& where)
      : folder_(std::move(folder)) {
    for (const std::string& name : folder_->classes()) {
      const auto found = std::ranges::find(classes, name);
      check(found != classes.end(), "{}: class {} is none of the {} of training", where, quoted_cell(name),
            classes.size());
      numbers_.push_back(found - classes.begin());
    }
  }
  std::int64_t label(std::int64_t index) const { return numbers_[static_cast<std::size_t>(folder_->label(index))]; }
  std::int64_t size() const override { return folder_->size(); }
  using Dataset::get;
  Example get(std::int64_t index) const override {
    return {folder_->get(index)[0], Tensor::from({label(index)}, Shape{})};
  }

 private:
  std::shared_ptr<const ImageFolder> folder_;
  std::vector<std::int64_t> numbers_;
};

// Pictures without labels.
class PictureFiles : public Dataset {
 public:
  PictureFiles(std::vector<fs::path> files, const ImageOptions& options)
      : files_(std::move(files)), options_(options) {}
  std::int64_t size() const override { return std::ssize(files_); }
  using Dataset::get;
  Example get(std::int64_t index) const override {
    check(index >= 0 && index < size(), "pictures: example {} is out of range [0, {})", index, size());
    return {read_image(files_[static_cast<std::size_t>(index)], options_)};
  }

 private:
  std::vector<fs::path> files_;
  ImageOptions options_;
};

std::vector<std::string> folders_in(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && entry->is_directory(ignored)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// The folders of a data set with a part for training.
struct ImageParts {
  std::optional<fs::path> train, test;
  std::vector<std::string> others{};
};

// Ignores case, so "Train" is no class. A folder "train" without subfolders is a class, as of pictures of trains.
ImageParts find_parts(const fs::path& path) {
  ImageParts parts;
  std::vector<std::string> names = folders_in(path);
  const auto take = [&](std::initializer_list<std::string_view> known) -> std::optional<fs::path> {
    for (const std::string_view word : known) {
      const auto is_word = [&](const std::string& name) {
        return std::ranges::equal(name, word, {},
                                  [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      };
      const auto found = std::ranges::find_if(names, is_word);
      if (found == names.end() || folders_in(path / *found).empty()) continue;
      const std::string name = *found;
      names.erase(found);
      const auto second = std::ranges::find_if(names, is_word);
      check(second == names.end(), "{}: has the folders {} and {}, expected one of them", path.string(),
            quoted_cell(name), quoted_cell(second == names.end() ? "" : *second));
      return path / name;
    }
    return std::nullopt;
  };
  parts.train = take({"train", "training"});
  if (!parts.train) return parts;
  parts.test = take({"val", "valid", "validation", "test", "testing"});
  parts.others = std::move(names);
  return parts;
}

std::string unused_text(const ImageParts& parts) {
  if (parts.others.empty()) return "";
  std::string text;
  for (const std::string& name : parts.others) text += (text.empty() ? "; not used: " : ", ") + quoted_cell(name);
  return text;
}

// Pictures of one size keep it, up to 256. Otherwise a square, whose edge is the shortest edge of all pictures, rounded
// up to a multiple of 32, from 32 to 224.
ImageSize find_size(const ImageFolder& folder, std::int64_t asked) {
  if (asked > 0) return {asked, asked};
  constexpr std::int64_t kLargestKept = 256, kStep = 32, kMostEdge = 224;
  const ImageFolder::Sizes& all = folder.sizes();
  const bool one_size = all.min_height == all.max_height && all.min_width == all.max_width;
  if (one_size && std::max(all.max_height, all.max_width) <= kLargestKept) return {all.max_height, all.max_width};
  const std::int64_t edge = (std::min(all.min_height, all.min_width) + kStep - 1) / kStep * kStep;
  const std::int64_t square = std::clamp(edge, kStep, kMostEdge);
  return {square, square};
}

// Adds the names of the pictures relative to the data's path. `part` is the folder of the part in it, if any.
void add_names(const ImageFolder& folder, const std::optional<fs::path>& part, std::vector<std::string>& names) {
  const std::string prefix = part ? part->filename().native() + "/" : "";
  for (std::int64_t i = 0; i < folder.size(); ++i) names.push_back(prefix + folder.name(i));
}

// Mean and standard deviation of each channel of training pictures.
ChannelStatistics find_normalization(const Dataset& train, std::int64_t channels, const DataOptions& options,
                                     const std::string& where) {
  if (has_given_normalization(options, channels, where)) {
    return {for_channels(options.mean, channels), for_channels(options.stddev, channels)};
  }
  const auto count = static_cast<std::size_t>(channels);
  if (options.normalization == Normalization::none) {
    return {std::vector<double>(count, 0.0), std::vector<double>(count, 1.0)};
  }
  ChannelStatistics found = channel_statistics(train, {.threads = static_cast<int>(available_cpus().size())});
  std::ranges::replace(found.std, 0.0, 1.0);
  return found;
}

}  // namespace

std::string augmented_text(const DataOptions& options) {
  if (!augments(options.augment, options.transforms)) return "";
  const bool by_name = augments(Augment::none, options.transforms);
  return fmt::format(
      ", augmented ({}{})",
      options.augment == Augment::none ? "" : fmt::format("{}{}", augment_name(options.augment), by_name ? ", " : ""),
      by_name ? "transforms by name" : "");
}

bool has_given_normalization(const DataOptions& options, std::int64_t channels, const std::string& where) {
  if (options.mean.empty() && options.stddev.empty()) return false;
  const auto fits = [&](const std::vector<double>& numbers) {
    return numbers.size() == 1 || std::ssize(numbers) == channels;
  };
  check(fits(options.mean) && fits(options.stddev),
        "{}: mean and stddev have {} and {} numbers, expected one, or one for each of the {} channels of the pictures",
        where, options.mean.size(), options.stddev.size(), channels);
  check(options.normalization == Normalization::automatic,
        "{}: mean and stddev are given, expected normalization to be automatic", where);
  for (const double stddev : options.stddev) {
    check(stddev > 0, "{}: stddev has {}, expected numbers above 0", where, stddev);
  }
  return true;
}

std::vector<double> for_channels(const std::vector<double>& given, std::int64_t channels) {
  return given.size() == 1 ? std::vector<double>(static_cast<std::size_t>(channels), given[0]) : given;
}

DataSource open_images(const fs::path& path, const DataOptions& options) {
  check(!options.task || *options.task == TaskKind::classification,
        "{}: pictures, and the task {}, expected classification", path.string(), name(*options.task));
  const ImageParts parts = find_parts(path);
  const std::optional<fs::path>& train_part = parts.train;
  const std::optional<fs::path>& test_part = parts.test;
  const auto folder =
      std::make_shared<ImageFolder>(train_part.value_or(path), ImageFolderOptions{.skip_broken = options.skip_broken,
                                                                                  .max_pixels = options.max_pixels,
                                                                                  .allow_empty = options.skip_broken});
  const auto& classes = folder->classes();
  check(classes.size() >= 2, "{}: one class, {}, expected a folder of pictures for each of at least two classes",
        path.string(), classes.empty() ? "" : quoted_cell(classes[0]));
  SplitRows rows;
  for (std::int64_t i = 0; i < folder->size(); ++i) {
    const bool validation = !test_part && in_validation(folder->name(i), options.val_split);
    (validation ? rows.validation : rows.train).push_back(i);
  }
  check_option(!rows.train.empty(), "val_split", "{}: no picture is left for training: val_split is {}", path.string(),
               options.val_split);
  check_option(test_part || options.val_split == 0 || !rows.validation.empty(), "val_split",
               "{}: {} pictures, none of which val_split = {} takes for validation, expected more, or a larger share",
               path.string(), rows.train.size(), options.val_split);

  DataSource data{.train_counts = std::vector<std::int64_t>(classes.size(), 0),
                  .validation_counts = std::vector<std::int64_t>(classes.size(), 0),
                  .skipped = std::ssize(folder->skipped())};
  PartLabels labels;
  for (const std::int64_t i : rows.train) labels.train.push_back(folder->label(i));
  for (const std::int64_t i : rows.validation) labels.validation.push_back(folder->label(i));
  std::vector<std::string> names;
  add_names(*folder, train_part, names);
  const ImageSize size = find_size(*folder, options.image_size);
  const ImageTransform plain = augmentation(Augment::none, size);
  const ImageTransform augmented = augmentation(options.augment, size, options.transforms);
  const std::uint64_t room = memory_for_pictures() / (test_part ? 2 : 1);
  const auto pictures = std::make_shared<ResizedPictures>(folder, folder->sizes(), folder->channels(), size, room);
  std::shared_ptr<const Dataset> train, validation;
  // A RandomResizedCrop cuts from the whole picture, so it must not get resized pictures.
  if (pictures->unchanged() || augmented.str().starts_with(plain.str())) {
    train = std::make_shared<Subset>(pictures, rows.train);
  } else {
    train = std::make_shared<Subset>(folder, rows.train);
  }
  if (test_part) {
    const auto test = std::make_shared<ImageFolder>(*test_part, ImageFolderOptions{.channels = folder->channels(),
                                                                                   .skip_broken = options.skip_broken,
                                                                                   .max_pixels = options.max_pixels,
                                                                                   .allow_empty = options.skip_broken});
    const auto relabeled = std::make_shared<RelabeledFolder>(test, classes, test_part->string());
    for (std::int64_t i = 0; i < test->size(); ++i) labels.validation.push_back(relabeled->label(i));
    validation = std::make_shared<ResizedPictures>(relabeled, test->sizes(), folder->channels(), size, room);
    data.validation_name = [test](std::int64_t index) { return test->name(index); };
    data.skipped += std::ssize(test->skipped());
    add_names(*test, test_part, names);
  } else if (!rows.validation.empty()) {
    validation = std::make_shared<Subset>(pictures, rows.validation);
    data.validation_name = [folder, chosen = rows.validation](std::int64_t index) {
      return folder->name(chosen.at(static_cast<std::size_t>(index)));
    };
  }

  for (const std::int64_t label : labels.train) ++data.train_counts[static_cast<std::size_t>(label)];
  for (const std::int64_t label : labels.validation) ++data.validation_counts[static_cast<std::size_t>(label)];

  const ChannelStatistics statistics = find_normalization(train | plain, folder->channels(), options, path.string());
  data.schema = {.format = DataFormat::images,
                 .task = TaskKind::classification,
                 .classes = classes,
                 .input = {folder->channels(), size.height, size.width},
                 .outputs = std::ssize(classes),
                 .image = ImageSchema{.height = size.height,
                                      .width = size.width,
                                      .channels = folder->channels(),
                                      .mean = statistics.mean,
                                      .stddev = statistics.std}};
  const Normalize normalize(statistics.mean, statistics.std);
  const auto transformed = std::make_shared<TransformedDataset>(train | augmented | normalize);
  data.transforms = transformed->str() + "; " + image_decoder_version();
  data.train = transformed;
  if (validation) data.validation = std::make_shared<TransformedDataset>(validation | plain | normalize);
  data.digest = files_digest_of_names(path, std::move(names), {.contents = options.hash_data});
  data.digest_covers_contents = options.hash_data;
  const ImageFolder::Sizes& sizes = folder->sizes();
  data.description = fmt::format(
      "{}: pictures, {}, {} x {} to {} x {} pixels (height x width), used as {} x {}{}; {}; {} to train, {} to "
      "validate{}",
      path.string(), folder->channels() == 1 ? "gray" : "color", sizes.min_height, sizes.min_width, sizes.max_height,
      sizes.max_width, size.height, size.width, augmented_text(options), classes_text(data), data.train->size(),
      data.validation ? data.validation->size() : 0,
      data.skipped == 0 ? ""
                        : fmt::format("; skipped: {} broken picture{}", data.skipped, data.skipped == 1 ? "" : "s"));
  data.description += unused_text(parts);
  data.has_validation_part = test_part.has_value();
  limit_parts(data, options, labels);
  return data;
}

DataExamples open_image_examples(const fs::path& path, const DataSchema& schema, const ExampleOptions& options) {
  check(schema.image.has_value(), "data schema: no sizes of pictures");
  const ImageSchema& image = *schema.image;
  DataExamples examples;
  std::shared_ptr<const Dataset> pictures;
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const bool skip_broken = options.skip_broken;
  const std::optional<fs::path> test_part = is_folder && options.labels ? find_parts(path).test : std::nullopt;
  if (test_part && is_image_folder(*test_part)) return open_image_examples(*test_part, schema, options);
  if (is_folder && options.labels && is_image_folder(path)) {
    const auto folder = std::make_shared<ImageFolder>(path, ImageFolderOptions{.channels = image.channels,
                                                                               .skip_broken = skip_broken,
                                                                               .max_pixels = options.max_pixels,
                                                                               .allow_empty = true});
    examples.skipped = std::ssize(folder->skipped());
    pictures = std::make_shared<RelabeledFolder>(folder, schema.classes, path.string());
    examples.labeled = true;
    for (std::int64_t i = 0; i < folder->size(); ++i) examples.names.emplace_back(folder->name(i));
  } else {
    std::vector<std::string> names = is_folder ? files_below(path) : std::vector{path.filename().string()};
    check(!names.empty(), "{}: the folder is empty, expected pictures", path.string());
    const auto file_of = [&](const std::string& name) { return is_folder ? path / name : path; };
    const bool one = names.size() == 1;
    const ImageOptions decoding{.channels = image.channels, .max_pixels = options.max_pixels};
    std::erase_if(names, [&](const std::string& name) {
      try {
        const ImageFile picture(file_of(name));
        picture.probe();  // throws here, not in the loop
        if (skip_broken) picture.decode(decoding);
      } catch (const Error& error) {
        if (!skip_broken) {
          fail_option({"skip_broken", "max_pixels"}, "{}{}", error.what(),
                      one ? "" : "; skip_broken leaves such files out");
        }
        ++examples.skipped;
        return true;
      }
      return false;
    });
    check(!names.empty(), "{}: all {} files are broken, or are no pictures", path.string(), examples.skipped);
    std::vector<fs::path> files;
    for (const std::string& name : names) files.push_back(file_of(name));
    examples.names = std::move(names);
    pictures = std::make_shared<PictureFiles>(std::move(files), decoding);
  }
  examples.data = std::make_shared<TransformedDataset>(
      pictures | augmentation(Augment::none, {image.height, image.width}) | Normalize(image.mean, image.stddev));
  return examples;
}

}  // namespace lockstep
