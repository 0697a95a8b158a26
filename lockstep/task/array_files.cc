#include "lockstep/task/array_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/byte_source.h"
#include "lockstep/data/cifar.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/idx.h"
#include "lockstep/data/npy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using NamedArrays = std::map<std::string, FileArray>;

ArrayFiles pair_up(const NamedArrays& arrays, const std::string& where) {
  const auto take = [&](const std::string& x, const std::string& y) -> std::optional<ArrayPair> {
    const auto found = arrays.find(x);
    if (found == arrays.end()) return std::nullopt;
    const auto labels = arrays.find(y);
    return ArrayPair{found->second, labels == arrays.end() ? std::nullopt : std::optional(labels->second)};
  };
  ArrayFiles files{.train = take("x", "y"), .test = take("x_test", "y_test")};
  const bool both = files.train && arrays.contains("x_train");
  if (!files.train) files.train = take("x_train", "y_train");
  std::string names;
  for (const auto& [name, array] : arrays) names += (names.empty() ? "" : ", ") + quoted_cell(name);
  check(!both && (files.train || files.test),
        "{}: has the arrays {}, expected x and y, or x_train, y_train, and maybe x_test and y_test", where,
        names.empty() ? "none" : names);
  return files;
}

NamedArrays npy_folder(const fs::path& folder, std::vector<fs::path>& files) {
  NamedArrays arrays;
  for (const char* name : {"x", "y", "x_train", "y_train", "x_test", "y_test"}) {
    const fs::path file = folder / fmt::format("{}.npy", name);
    std::error_code error;
    if (!fs::exists(file, error)) continue;
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
    const bool named = tensor.name.starts_with('x') || tensor.name.starts_with('y');
    if (const auto type = element_type_of(std::string_view(tensor.dtype))) {
      add(tensor.name, *type, tensor.dims, tensor.bytes);
    } else {
      check(!named, "{}: tensor {} is {}, expected integers or floats of at least 16 bits", path.string(),
            quoted_cell(tensor.name), tensor.describe());
    }
  }
  return arrays;
}

// The file of a folder whose name has the part ("train") and the kind ("images").
std::optional<fs::path> idx_file(const std::vector<fs::path>& files, std::initializer_list<std::string_view> parts,
                                 std::string_view kind) {
  std::optional<fs::path> found;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    const bool fits = name.find(kind) != name.npos &&
                      std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != name.npos; });
    if (!fits) continue;
    check(!found, "{} and {}: two files of {}, expected one", found->string(), name, kind);
    found = file;
  }
  return found;
}

FileArray idx_array(const fs::path& file) {
  const IdxArray array = read_idx(file);
  return {std::string(array.data.begin(), array.data.end()), ElementType::u8, array.dims, file.string()};
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
  Sha256 hash;
  for (const FileArray* const array : {&files.train->x, &*files.train->y}) {
    std::vector<std::byte> bytes(array->bytes());
    array->read_bytes(0, array->rows(), bytes);
    hash.update(bytes);
  }
  files.sha256 = hash.hex();
  constexpr std::string_view kFashionMnist = "16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157";
  if (files.sha256 == kFashionMnist) files.class_names = {kFashionMnistClasses.begin(), kFashionMnistClasses.end()};
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

}  // namespace

ArrayFiles find_arrays(const fs::path& path, DataFormat format) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (format == DataFormat::cifar || format == DataFormat::idx) {
    check(folder, "{}: a file, expected a folder with {} files", path.string(),
          format == DataFormat::idx ? "IDX" : "CIFAR's .bin");
    return format == DataFormat::idx ? idx_folder(path) : cifar_folder(path);
  }
  std::vector<fs::path> names{path};
  NamedArrays arrays;
  if (format == DataFormat::safetensors) {
    arrays = safetensors_arrays(path);
  } else if (folder) {
    names.clear();
    arrays = npy_folder(path, names);
  } else if (path.extension() == ".npy") {
    // x.npy has its labels beside it.
    const std::string stem = path.stem().string();
    arrays.emplace("x", read_npy(path));
    if (stem.starts_with('x')) {
      const fs::path labels = path.parent_path() / fmt::format("y{}.npy", stem.substr(1));
      if (fs::exists(labels, error)) {
        arrays.emplace("y", read_npy(labels));
        names.push_back(labels);
      }
    }
  } else {
    arrays = read_npz(path);
  }
  ArrayFiles files = pair_up(arrays, path.string());
  files.files = std::move(names);
  return files;
}

}  // namespace lockstep
