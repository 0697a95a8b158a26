#include "lockstep/checkpoint/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own bound
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 40;
constexpr std::size_t kMaxDepth = 3;  // {tensor: {shape: [...]}}
// Far more than any tensor or metadata has: a header of 100 MB of axes or entries would take gigabytes of memory.
constexpr std::size_t kMaxAxes = 1024, kMaxEntries = 65'536;
constexpr const char* kMetadata = "__metadata__";

struct DTypeCode {
  DType dtype;
  std::string_view code;
};
constexpr std::array<DTypeCode, 7> kDTypeCodes{{{DType::f32, "F32"},
                                                {DType::bf16, "BF16"},
                                                {DType::f16, "F16"},
                                                {DType::f64, "F64"},
                                                {DType::i64, "I64"},
                                                {DType::u8, "U8"},
                                                {DType::boolean, "BOOL"}}};

std::string_view code_of(DType dtype) { return std::ranges::find(kDTypeCodes, dtype, &DTypeCode::dtype)->code; }

// Element sizes of the format's other types. Types of later versions, and types of less than a byte, are not known.
constexpr std::array<std::pair<std::string_view, std::size_t>, 10> kForeignSizes{{{"I8", 1},
                                                                                  {"F8_E4M3", 1},
                                                                                  {"F8_E5M2", 1},
                                                                                  {"F8_E8M0", 1},
                                                                                  {"I16", 2},
                                                                                  {"U16", 2},
                                                                                  {"I32", 4},
                                                                                  {"U32", 4},
                                                                                  {"U64", 8},
                                                                                  {"C64", 8}}};

std::optional<std::size_t> item_size_of(std::string_view code) {
  const auto known = std::ranges::find(kDTypeCodes, code, &DTypeCode::code);
  if (known != kDTypeCodes.end()) return item_size(known->dtype);
  const auto foreign = std::ranges::find(kForeignSizes, code, &std::pair<std::string_view, std::size_t>::first);
  return foreign == kForeignSizes.end() ? std::nullopt : std::optional(foreign->second);
}

// Returns the number of bytes of a tensor; nothing if the item size times all extents but those of 0 overflows.
std::optional<std::uint64_t> bytes_of(std::size_t item, std::span<const std::int64_t> dims) {
  auto bytes = static_cast<std::int64_t>(item);
  for (std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(dim, 1), &bytes)) return std::nullopt;
  }
  return std::ranges::count(dims, 0) > 0 ? 0 : static_cast<std::uint64_t>(bytes);
}

// torch.save() writes a zip archive of pickled objects, and before version 1.6 a pickle. Only Python reads these: they
// contain code.
std::string how_to_convert(std::string_view origin) {
  const std::filesystem::path name = std::filesystem::path(origin).filename();
  return fmt::format(
      "convert it with python3 -c 'import sys, torch, safetensors.torch as s; s.save_file(torch.load(sys.argv[1], "
      "\"cpu\", weights_only=True), sys.argv[2])' {} {}, or from a program that has the model with "
      "safetensors.torch.save_file(net.state_dict(), ...)",
      shell_quoted(name.string()),
      shell_quoted(std::filesystem::path(name).replace_extension(".safetensors").string()));
}

void refuse_pytorch_archive(std::string_view contents, std::string_view origin) {
  const bool zip =
      contents.starts_with("PK\x03\x04") && contents.size() > kLengthBytes && contents[kLengthBytes] != '{';
  const bool pickle = contents.size() > kLengthBytes && contents[0] == '\x80' && contents[1] >= 2 && contents[1] <= 5 &&
                      contents[kLengthBytes] != '{';
  if (zip || pickle)
    fail("{}: this is a file of torch.save(), which only Python can read: {}", origin, how_to_convert(origin));
}

// Hint for a file that is damaged or in an unknown form of torch.save(): its extension may tell where it comes from.
std::string hint_from_name(std::string_view origin) {
  const std::string extension = std::filesystem::path(origin).extension().string();
  const bool pytorch = extension == ".pt" || extension == ".pth" || extension == ".ckpt" || extension == ".bin";
  return pytorch ? "; if it is a file of torch.save(), " + how_to_convert(origin) : "";
}

// Calls `take` for each entry. A header may have millions of entries, which are never all in memory.
void parse_header(std::string_view text, std::string_view origin,
                  const std::function<void(const std::string&, json)>& take) {
  check(text.starts_with('{') && text.find('\0') == text.npos, "{}: header is not a JSON object{}", origin,
        hint_from_name(origin));
  try {
    parse_json<json>(
        text,
        {.what = fmt::format("{}: header", origin), .depth = kMaxDepth, .names = kMaxEntries, .elements = kMaxAxes},
        take);
  } catch (const json::parse_error& error) {
    fail("{}: header is not valid JSON at its byte {} of {}", origin, error.byte, text.size());
  } catch (const json::exception& error) {
    fail("{}: header is not valid JSON: {}", origin, error.what());
  }
}

SafetensorsMetadata parse_metadata(const json& entry, std::string_view origin) {
  check(entry.is_object(), "{}: {} is {}, expected an object of strings", origin, kMetadata, excerpt(entry));
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    check(value.is_string(), "{}: {} has {} for {}, expected a string", origin, kMetadata, excerpt(value),
          excerpt(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Adds the tensor to the file. `where` names the file and the tensor in errors.
void parse_tensor(const std::string& name, const json& entry, std::span<const std::byte> data, const std::string& where,
                  SafetensorsFile& file) {
  check(entry.is_object(), "{}: found {}, expected an object", where, excerpt(entry));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    check(entry.contains(key), "{}: no {} in {}", where, key, excerpt(entry));
  }

  const json& dtype = entry["dtype"];
  check(dtype.is_string(), "{}: dtype is {}, expected a name", where, excerpt(dtype));
  const auto code = dtype.get<std::string>();

  auto is_extent = [](const json& dim) {
    return dim.is_number_unsigned() && dim.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  };
  const json& shape = entry["shape"];
  check(shape.is_array() && std::ranges::all_of(shape, is_extent),
        "{}: shape is {}, expected a list of non-negative integers", where, excerpt(shape));
  auto dims = shape.get<std::vector<std::int64_t>>();

  const json& offsets = entry["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2 && std::ranges::all_of(offsets, is_extent),
        "{}: data_offsets is {}, expected [begin, end]", where, excerpt(offsets));
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  check(begin <= end && end <= data.size(), "{}: data_offsets is {}, expected a range within {} bytes of data", where,
        excerpt(offsets), data.size());
  if (const auto item = item_size_of(code)) {
    const auto expected = bytes_of(*item, dims);
    check(expected.has_value(), "{}: shape {} of {} has more bytes than can be counted", where, excerpt(shape), code);
    check(end - begin == *expected, "{}: data_offsets {} hold {} bytes, shape {} of {} takes {}", where,
          excerpt(offsets), end - begin, excerpt(shape), code, *expected);
  }
  const auto bytes = data.subspan(begin, end - begin);
  const auto known = std::ranges::find(kDTypeCodes, code, &DTypeCode::code);
  if (known != kDTypeCodes.end() && dims.size() <= Shape::kMaxDim) {
    file.tensors.push_back({name, known->dtype, Shape(dims), bytes});
  } else {
    file.foreign.push_back({name, code, std::move(dims), bytes});
  }
}

// Checks that every byte of the data belongs to exactly one tensor. Sorts the tensors by offset.
void check_coverage(SafetensorsFile& file, std::span<const std::byte> data, std::string_view origin) {
  const auto by_place = [](const auto& t) { return std::tuple(t.bytes.data(), t.bytes.size()); };
  std::ranges::sort(file.tensors, {}, by_place);
  std::ranges::sort(file.foreign, {}, by_place);
  std::vector<std::pair<std::span<const std::byte>, const std::string*>> all;
  for (const TensorBytes& t : file.tensors) all.emplace_back(t.bytes, &t.name);
  for (const ForeignTensor& t : file.foreign) all.emplace_back(t.bytes, &t.name);
  std::ranges::stable_sort(all, {}, [](const auto& t) { return std::tuple(t.first.data(), t.first.size()); });
  const std::byte* covered = data.data();
  std::string before = "the start of the data";
  for (const auto& [bytes, name] : all) {
    const auto gap = bytes.data() - covered;
    check(gap >= 0, "{}: tensor {} overlaps {} by {} bytes", origin, excerpt(*name), before, -gap);
    check(gap == 0, "{}: {} bytes between {} and tensor {} belong to no tensor", origin, gap, before, excerpt(*name));
    covered += bytes.size();
    before = "tensor " + excerpt(*name);
  }
  const auto rest = data.data() + data.size() - covered;
  check(rest == 0, "{}: {} bytes after {} belong to no tensor", origin, rest, before);
}

// The header of a file, padded so that the data starts at a multiple of 8 bytes.
std::string make_header(std::span<const TensorBytes* const> tensors, const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t offset = 0;
  for (const TensorBytes* tensor : tensors) {
    const std::string name = excerpt(tensor->name);
    check(tensor->name != kMetadata, "write_safetensors: no tensor can have the name {}", name);
    check(!header.contains(tensor->name), "write_safetensors: two tensors have the name {}", name);
    const auto expected = bytes_of(item_size(tensor->dtype), tensor->shape.sizes());
    check(expected.has_value() && *expected == tensor->bytes.size(),
          "write_safetensors: tensor {} has {} bytes, shape {} of {} takes {}", name, tensor->bytes.size(),
          tensor->shape, lockstep::name(tensor->dtype),
          expected ? std::to_string(*expected) : "more than can be counted");
    header[tensor->name] = {{"dtype", code_of(tensor->dtype)},
                            {"shape", tensor->shape.sizes()},
                            {"data_offsets", {offset, offset + *expected}}};
    offset += *expected;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception&) {
    fail("write_safetensors: a name or the metadata is not valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= kMaxHeaderBytes, "write_safetensors: header has {} bytes, at most {} are allowed", text.size(),
        kMaxHeaderBytes);
  return text;
}

}  // namespace

std::string ForeignTensor::describe() const {
  const bool plain =
      std::ranges::all_of(dtype, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
  return fmt::format("{} [{}]", plain && dtype.size() < 20 ? dtype : excerpt(dtype), fmt::join(dims, ", "));
}

const TensorBytes* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &TensorBytes::name);
  return found == tensors.end() ? nullptr : &*found;
}

SafetensorsFile parse_safetensors(std::string bytes, std::string_view origin) {
  auto contents = std::make_shared<const std::string>(std::move(bytes));
  check(contents->size() >= kLengthBytes, "{}: {} bytes are too few for a safetensors file, which starts with {}{}",
        origin, contents->size(), kLengthBytes, hint_from_name(origin));
  refuse_pytorch_archive(*contents, origin);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, contents->data(), kLengthBytes);
  check(header_bytes <= kMaxHeaderBytes,
        "{}: not a safetensors file: its header would have {} bytes, at most {} are allowed{}", origin, header_bytes,
        kMaxHeaderBytes, hint_from_name(origin));
  check(header_bytes <= contents->size() - kLengthBytes, "{}: header has {} bytes, only {} are in the file{}", origin,
        header_bytes, contents->size() - kLengthBytes, hint_from_name(origin));

  SafetensorsFile file;
  const auto data = std::as_bytes(std::span(*contents)).subspan(kLengthBytes + header_bytes);
  parse_header(std::string_view(*contents).substr(kLengthBytes, header_bytes), origin,
               [&](const std::string& name, const json& entry) {
                 if (name == kMetadata) {
                   file.metadata = parse_metadata(entry, origin);
                 } else {
                   parse_tensor(name, entry, data, fmt::format("{}: tensor {}", origin, excerpt(name)), file);
                 }
               });
  check_coverage(file, data, origin);
  file.contents = std::move(contents);
  return file;
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  std::error_code unknown;  // on an error, read_file reports the reason
  const auto type = std::filesystem::status(path, unknown).type();
  // A pipe would block, and a device might never end.
  check(unknown || type == std::filesystem::file_type::regular || type == std::filesystem::file_type::directory,
        "cannot read {}: it is not a regular file", path.string());
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) check_file_memory(size, size, path.string(), "the file");
  return parse_safetensors(read_file(path, kMaxFileBytes), path.string());
}

void write_safetensors(const ByteSink& sink, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<const TensorBytes*> order;
  for (const TensorBytes& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const TensorBytes* tensor) { return item_size(tensor->dtype); });

  const std::string header = make_header(order, metadata);
  const std::array<std::uint64_t, 1> length{header.size()};
  sink(std::as_bytes(std::span(length)));
  sink(std::as_bytes(std::span(header)));
  for (const TensorBytes* tensor : order) sink(tensor->bytes);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata) {
  AtomicFile file(path);
  write_safetensors([&](std::span<const std::byte> bytes) { file.write(bytes); }, tensors, metadata);
  file.commit();
}

}  // namespace lockstep
