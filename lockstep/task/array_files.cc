#include "lockstep/task/array_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/formats/byte_source.h"
#include "lockstep/data/formats/cifar.h"
#include "lockstep/data/formats/idx.h"
#include "lockstep/data/formats/npy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using NamedArrays = std::map<std::string, FileArray>;

constexpr std::string_view kExpectedArrays =
    "expected x (or data, images, inputs, features) and y (or labels, targets), or x_train, y_train, and maybe x_test "
    "and y_test";

std::string quoted_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + quoted_cell(name);
  return text.empty() ? "none" : text;
}

// `others`: names of arrays that were not read.
ArrayFiles pair_up(const NamedArrays& arrays, const std::string& where, std::vector<std::string> others = {}) {
  std::vector<std::string> names = std::move(others);
  for (const auto& [name, array] : arrays) names.push_back(name);
  std::ranges::sort(names);
  ArrayFiles files{.found = quoted_names(names)};
  // numpy.savez of three or more arrays does not say which of them are x and y.
  const bool numbered = arrays.contains("arr_2");
  std::optional<FileArray> found[2][2];  // [test][label]
  std::string first[2][2];
  for (const auto& [name, array] : arrays) {
    const std::optional<ArrayName> kind = parse_array_name(name);
    if (!kind || (numbered && name.starts_with("arr_"))) continue;
    auto& slot = found[kind->is_test ? 1 : 0][kind->is_label ? 1 : 0];
    std::string& before = first[kind->is_test ? 1 : 0][kind->is_label ? 1 : 0];
    check(!slot, "{}: has the arrays {}, of which both {} and {} may be the {}, {}", where, files.found,
          quoted_cell(before), quoted_cell(name), kind->is_label ? "labels" : "inputs", kExpectedArrays);
    slot = array;
    before = name;
  }
  if (found[0][0]) files.train = ArrayPair{*found[0][0], found[0][1]};
  if (found[1][0]) files.test = ArrayPair{*found[1][0], found[1][1]};
  check(files.train || files.test, "{}: has the arrays {}, {}", where, files.found, kExpectedArrays);
  return files;
}

std::vector<fs::path> npy_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".npy") files.push_back(entry->path());
  }
  check(!error, "cannot read {}: {}", folder.string(), error.message());
  std::ranges::sort(files);
  return files;
}

NamedArrays npy_folder(const fs::path& folder, std::vector<fs::path>& files, std::vector<std::string>& others) {
  NamedArrays arrays;
  for (const fs::path& file : npy_files(folder)) {
    const std::string name = file.stem().string();
    if (!parse_array_name(name)) {
      others.push_back(name);
      continue;
    }
    arrays.emplace(name, read_npy(file));
    files.push_back(file);
  }
  return arrays;
}

std::optional<ElementType> element_type_of(std::string_view code) {
  constexpr std::pair<std::string_view, ElementType> kTypes[] = {
      {"BOOL", ElementType::boolean}, {"I8", ElementType::i8},   {"I16", ElementType::i16}, {"U16", ElementType::u16},
      {"I32", ElementType::i32},      {"U32", ElementType::u32}, {"U64", ElementType::u64}};
  for (const auto& [name, type] : kTypes) {
    if (name == code) return type;
  }
  return std::nullopt;
}

ElementType element_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ElementType::f32;
    case DType::bf16: return ElementType::bf16;
    case DType::f64: return ElementType::f64;
    case DType::i64: return ElementType::i64;
    case DType::u8: return ElementType::u8;
    case DType::boolean: return ElementType::boolean;
    case DType::f16: return ElementType::f16;
  }
  fail("unknown dtype {}", static_cast<int>(dtype));
}

NamedArrays safetensors_arrays(const fs::path& path) {
  const SafetensorsFile file = read_safetensors(path);
  const auto source = bytes_in_memory(file.contents);
  NamedArrays arrays;
  const auto add = [&](const std::string& name, ElementType type, std::vector<std::int64_t> dims,
                       std::span<const std::byte> bytes) {
    const std::string shown = quoted_cell(name);
    const auto* const start = reinterpret_cast<const std::byte*>(file.contents->data());
    const std::uint64_t offset = bytes.empty() ? 0 : static_cast<std::uint64_t>(bytes.data() - start);
    arrays.emplace(name, FileArray(source, {.type = type, .dims = std::move(dims), .offset = offset},
                                   fmt::format("{}: {}", path.string(), shown.substr(1, shown.size() - 2))));
  };
  for (const TensorBytes& tensor : file.tensors) {
    add(tensor.name, element_type_of(tensor.dtype), {tensor.shape.begin(), tensor.shape.end()}, tensor.bytes);
  }
  for (const ForeignTensor& tensor : file.foreign) {
    const bool named = parse_array_name(tensor.name).has_value();
    if (const auto type = element_type_of(std::string_view(tensor.dtype))) {
      add(tensor.name, *type, tensor.dims, tensor.bytes);
    } else {
      check(!named, "{}: tensor {} is {}, expected integers or floats of at least 16 bits", path.string(),
            quoted_cell(tensor.name), tensor.describe());
    }
  }
  return arrays;
}

// Finds the file whose name has one of the parts ("train") and the kind ("images").
std::optional<fs::path> idx_file(const std::vector<fs::path>& files, std::initializer_list<std::string_view> parts,
                                 std::string_view kind) {
  std::optional<fs::path> found;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    const bool fits = name.find(kind) != name.npos &&
                      std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != name.npos; });
    // Prefers a plain file to its gzipped copy, which comes after it.
    if (!fits || (found && name == found->filename().string() + ".gz")) continue;
    check(!found, "{} and {}: two files of {}, expected one", found->string(), name, kind);
    found = file;
  }
  return found;
}

FileArray idx_array(const fs::path& file) {
  IdxArray array = read_idx(file);
  return {
      bytes_in_memory(std::move(array.data)), {.type = ElementType::u8, .dims = std::move(array.dims)}, file.string()};
}

// Returns the names of the ten classes of MNIST and its replacements, which they have even if a subset lacks examples
// of one. Data with these hashes are Fashion-MNIST, whose classes have names. Empty for other classes.
std::vector<std::string> mnist_classes(const fs::path& folder, const ArrayFiles& files) {
  constexpr std::string_view kTrain = "16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157",
                             kTest = "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4";
  constexpr std::int64_t kClasses = std::ssize(kFashionMnistClasses);
  if (files.sha256 == kTrain || files.test_sha256 == kTest)
    return {kFashionMnistClasses.begin(), kFashionMnistClasses.end()};
  if (!is_mnist(folder)) return {};
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < kClasses; ++c) names.push_back(std::to_string(c));
  for (const auto* const part : {&files.train, &files.test}) {
    if (!*part) continue;
    std::vector<std::uint8_t> labels(static_cast<std::size_t>((*part)->y->rows()));
    if ((*part)->y->row_elements() != 1) return {};
    (*part)->y->read(0, (*part)->y->rows(), std::span(labels));
    if (std::ranges::any_of(labels, [](std::uint8_t label) { return label >= kClasses; })) return {};
  }
  return names;
}

ArrayFiles idx_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> all;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    if (entry->path().filename().string().find("-ubyte") != std::string::npos) all.push_back(entry->path());
    if (error) break;
  }
  check(!error, "cannot read {}: {}", folder.string(), error.message());
  std::ranges::sort(all);
  // If the folder has MNIST's own file names, ignores other names, such as those of a copy.
  if (is_mnist(folder)) {
    std::erase_if(all, [](const fs::path& file) {
      std::string name = file.filename().string();
      if (name.ends_with(".gz")) name.resize(name.size() - 3);
      return std::ranges::find(kMnistFiles, name) == kMnistFiles.end();
    });
  }
  ArrayFiles files;
  const auto read_pair = [&](std::initializer_list<std::string_view> parts) -> std::optional<ArrayPair> {
    const auto images = idx_file(all, parts, "images"), labels = idx_file(all, parts, "labels");
    check(images.has_value() == labels.has_value(), "{}: {} without {}, expected both", folder.string(),
          images   ? images->filename().string()
          : labels ? labels->filename().string()
                   : "",
          images ? "its labels" : "its images");
    if (!images) return std::nullopt;
    files.files.push_back(*images);
    files.files.push_back(*labels);
    return ArrayPair{idx_array(*images), idx_array(*labels)};
  };
  files.train = read_pair({"train"});
  files.test = read_pair({"t10k", "test"});
  check(files.train.has_value(),
        "{}: no IDX files of training data, expected train-images-idx3-ubyte and train-labels-idx1-ubyte",
        folder.string());
  const auto sha256 = [](const ArrayPair& pair) {
    Sha256 hash;
    for (const FileArray* const array : {&pair.x, &*pair.y}) {
      constexpr std::int64_t kAtOnce = 4096;
      std::vector<std::byte> bytes;
      for (std::int64_t first = 0; first < array->rows(); first += kAtOnce) {
        const std::int64_t count = std::min(kAtOnce, array->rows() - first);
        bytes.resize(static_cast<std::size_t>(array->row_elements() * count));  // of u8
        array->read_bytes(first, count, bytes);
        hash.update(bytes);
      }
    }
    return hash.hex();
  };
  files.sha256 = sha256(*files.train);
  if (files.test) files.test_sha256 = sha256(*files.test);
  files.class_names = mnist_classes(folder, files);
  if (files.test && files.class_names.empty()) {
    const std::string both = files.sha256 + std::exchange(files.test_sha256, "");
    Sha256 hash;
    hash.update(std::as_bytes(std::span(both)));
    files.sha256 = hash.hex();
  }
  return files;
}

ArrayFiles cifar_folder(const fs::path& folder) {
  const CifarFiles cifar = read_cifar(folder);
  ArrayFiles files{.train = ArrayPair{cifar.train.images, cifar.train.labels},
                   .test = {},
                   .class_names = cifar.class_names,
                   .files = cifar.files};
  if (cifar.test) files.test = ArrayPair{cifar.test->images, cifar.test->labels};
  return files;
}

// Removes `part`, and what joins it, from the start or end of the word. Empty if the word has no such part.
std::string_view without_part(std::string_view word, std::string_view part) {
  constexpr std::string_view kJoins = "_-.";
  if (word.size() <= part.size()) return {};
  if (word.ends_with(part)) {
    word.remove_suffix(part.size());
    if (kJoins.find(word.back()) != kJoins.npos) word.remove_suffix(1);
  } else if (word.starts_with(part)) {
    word.remove_prefix(part.size());
    if (kJoins.find(word.front()) != kJoins.npos) word.remove_prefix(1);
  } else {
    return {};
  }
  return word;
}

}  // namespace

std::optional<ArrayName> parse_array_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kInputs{"x", "data", "images", "inputs", "features", "arr_0"};
  constexpr std::array<std::string_view, 6> kLabels{"y", "label", "labels", "target", "targets", "arr_1"};
  constexpr std::array<std::string_view, 2> kTrain{"train", "training"};
  constexpr std::array<std::string_view, 4> kTest{"test", "val", "valid", "validation"};
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto kind_of = [&](std::string_view word, bool test) -> std::optional<ArrayName> {
    if (std::ranges::find(kInputs, word) != kInputs.end()) return ArrayName{.is_label = false, .is_test = test};
    if (std::ranges::find(kLabels, word) != kLabels.end()) return ArrayName{.is_label = true, .is_test = test};
    return std::nullopt;
  };
  if (const auto kind = kind_of(lower, false)) return kind;
  for (const std::string_view part : kTrain) {
    if (const auto kind = kind_of(without_part(lower, part), false)) return kind;
  }
  for (const std::string_view part : kTest) {
    if (const auto kind = kind_of(without_part(lower, part), true)) return kind;
  }
  return std::nullopt;
}

ArrayFiles find_arrays(const fs::path& path, DataFormat format) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (format == DataFormat::cifar || format == DataFormat::idx) {
    check(folder, "{}: a file, expected a folder with {} files", path.string(),
          format == DataFormat::idx ? "IDX" : "CIFAR's .bin");
    return format == DataFormat::idx ? idx_folder(path) : cifar_folder(path);
  }
  std::vector<fs::path> names{path};
  std::vector<std::string> others;
  NamedArrays arrays;
  if (format == DataFormat::safetensors) {
    arrays = safetensors_arrays(path);
  } else if (folder) {
    names.clear();
    arrays = npy_folder(path, names, others);
  } else if (path.extension() == ".npy") {
    // The labels of x.npy are in a file beside it. A file with an unknown name holds inputs alone.
    const std::optional<ArrayName> kind = parse_array_name(path.stem().string());
    arrays.emplace("x", read_npy(path));
    const fs::path beside = path.has_parent_path() ? path.parent_path() : fs::path(".");
    std::optional<fs::path> labels;
    for (const fs::path& file : kind && !kind->is_label ? npy_files(beside) : std::vector<fs::path>()) {
      const std::optional<ArrayName> other = parse_array_name(file.stem().string());
      if (!other || !other->is_label || other->is_test != kind->is_test) continue;
      check(!labels, "{}: both {} and {} may be its labels, expected one", path.string(), labels->filename().string(),
            file.filename().string());
      labels = file;
    }
    if (labels) {
      arrays.emplace("y", read_npy(*labels));
      names.push_back(*labels);
    }
  } else {
    check(format == DataFormat::npy, "{}: {}, expected a format of arrays", path.string(), name(format));
    arrays = read_npz(path);
  }
  ArrayFiles files = pair_up(arrays, path.string(), std::move(others));
  files.files = std::move(names);
  return files;
}

}  // namespace lockstep
