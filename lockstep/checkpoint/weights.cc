#include "lockstep/checkpoint/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/autograd/host_bytes.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights_change.h"
#include "lockstep/checkpoint/weights_index.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/nn/state_change.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxIndexBytes = 100'000'000;

enum class Infinity { refused, allowed };

// Without the sign bit, an infinity has the exponent bits alone; finite numbers are smaller as integers, and NaNs are
// larger. One pass without branches, so that the compiler vectorizes it.
template <typename Word>
bool all_sound(const Tensor& t, Word infinity, Infinity rule) {
  const auto* words = reinterpret_cast<const Word*>(host_bytes("weights", t).data());
  const auto magnitude = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1);
  const auto largest = static_cast<Word>(rule == Infinity::allowed ? infinity : infinity - 1);
  Word bad = 0;
  for (std::int64_t i = 0, n = t.numel(); i < n; ++i) bad |= static_cast<Word>((words[i] & magnitude) > largest);
  return bad == 0;
}

bool all_sound(const Tensor& t, Infinity rule) {
  switch (t.dtype()) {
    case DType::f32: return all_sound<std::uint32_t>(t, 0x7f800000u, rule);
    case DType::bf16: return all_sound<std::uint16_t>(t, 0x7f80u, rule);
    case DType::f16: return all_sound<std::uint16_t>(t, 0x7c00u, rule);
    case DType::f64: return all_sound<std::uint64_t>(t, 0x7ff0000000000000u, rule);
    case DType::i64:
    case DType::u8:
    case DType::boolean: return true;
  }
  return true;
}

// Names the first bad value.
[[noreturn]] void fail_unsound(std::string_view what, const std::string& name, const Tensor& t, Infinity rule) {
  visit_dtype(t.dtype(), [&](auto type) {
    using T = decltype(type);
    using Wide = std::conditional_t<is_half<T>, float, double>;
    const T* elements = t.data_ptr<const T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      const auto value = static_cast<Wide>(elements[i]);
      if (std::isfinite(value) || (std::isinf(value) && rule == Infinity::allowed)) continue;
      // The sign of a NaN has no meaning.
      fail("{}: {} holds {} at element {}", what, name, std::isnan(value) ? NAN : double{value}, i);
    }
  });
  fail("{}: {} holds values that are not finite", what, name);
}

}  // namespace

void check_finite(const StateDict& state, std::string_view what) {
  for (const auto& [name, t] : state) {
    if (!all_sound(t, Infinity::refused)) fail_unsound(what, name, t, Infinity::refused);
  }
}

StateDict sound_state_dict(const Module& module, std::string_view what) {
  ModuleTree::check_no_own_state(const_cast<Module&>(module), what);
  StateDict state = state_dict(module);
  std::set<std::string> free;
  for (const auto& [name, buffer] : module.named_buffers()) {
    if (!buffer.computed()) free.insert(name);
  }
  for (const auto& [name, t] : state) {
    const Infinity rule = free.contains(name) ? Infinity::allowed : Infinity::refused;
    if (!all_sound(t, rule)) fail_unsound(what, name, t, rule);
  }
  return state;
}

std::vector<TensorBytes> as_bytes(const StateDict& state) {
  std::vector<TensorBytes> all;
  for (const auto& [name, t] : state) {
    all.push_back({name, t.dtype(), t.shape(), host_bytes("weights: " + name, t)});
  }
  return all;
}

namespace {

template <typename From, typename To>
Tensor converted(const ForeignTensor& t) {
  Tensor tensor = Tensor::host(Shape(t.dims), dtype_of<To>);
  To* to = tensor.data_ptr<To>();
  for (std::size_t i = 0; i < t.bytes.size() / sizeof(From); ++i) {
    From from;
    std::memcpy(&from, t.bytes.data() + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(from);
  }
  return tensor;
}

// Returns an undefined tensor if no type holds the values of the foreign tensor.
Tensor as_tensor(const ForeignTensor& t) {
  if (t.dims.size() > Shape::kMaxDim) return {};
  if (t.dtype == "I8") return converted<std::int8_t, std::int64_t>(t);
  if (t.dtype == "I16") return converted<std::int16_t, std::int64_t>(t);
  if (t.dtype == "I32") return converted<std::int32_t, std::int64_t>(t);
  if (t.dtype == "U16") return converted<std::uint16_t, std::int64_t>(t);
  if (t.dtype == "U32") return converted<std::uint32_t, std::int64_t>(t);
  return {};
}

// The state in a file or a checkpoint.
struct SavedState {
  StateDict state;
  std::vector<ForeignTensor> unusable;  // without their bytes
  std::filesystem::path file;
};

SavedState state_in(const SafetensorsFile& file, std::filesystem::path path) {
  SavedState saved{.state = as_tensors(file), .file = std::move(path)};
  for (const ForeignTensor& t : file.foreign) {
    if (!as_tensor(t).defined()) saved.unusable.push_back({t.name, t.dtype, t.dims, {}});
  }
  return saved;
}

// Reads the state from several files, of which one at a time is in memory.
SavedState read_indexed_state(const std::filesystem::path& index) {
  SavedState all{.file = index};
  for (auto& [name, tensors] : parse_weights_index(read_file(index, kMaxIndexBytes), index.string())) {
    const SavedState part = state_in(read_safetensors(index.parent_path() / name), index.parent_path() / name);
    std::set<std::string> listed(tensors.begin(), tensors.end());
    const auto take = [&](const std::string& tensor) {
      check(listed.erase(tensor) == 1, "{}: holds {}, which {} does not list there", part.file.string(),
            excerpt(tensor), index.filename().string());
    };
    for (const auto& [tensor, value] : part.state) take(tensor);
    for (const ForeignTensor& t : part.unusable) take(t.name);
    check(listed.empty(), "{}: {} is missing, which {} lists there", part.file.string(),
          listed.empty() ? "" : excerpt(*listed.begin()), index.filename().string());
    all.state.insert(all.state.end(), part.state.begin(), part.state.end());
    all.unusable.insert(all.unusable.end(), part.unusable.begin(), part.unusable.end());
  }
  return all;
}

SavedState checkpoint_state(CheckpointContents checkpoint, const Module& module) {
  const auto has = [&](const char* name) { return checkpoint.files.contains(name); };
  std::string others;  // of several models
  for (const auto& [name, contents] : checkpoint.files) {
    if (name.ends_with(".weights.safetensors")) others += (others.empty() ? "" : ", ") + name;
  }
  check(others.empty() || has("weights.safetensors"),
        "{}: the checkpoint has several models, expected the path of one of its files: {}", checkpoint.path.string(),
        others);
  const auto parse = [&](const char* name) {
    checkpoint.file(name);  // throws if there is none
    return parse_safetensors(std::move(checkpoint.files[name]), (checkpoint.path / name).string());
  };
  SavedState saved = state_in(parse("weights.safetensors"), checkpoint.path / "weights.safetensors");
  if (!has("average.safetensors")) return saved;
  std::map<std::string, Tensor> averages;
  for (auto& [name, average] : as_tensors(parse("average.safetensors"))) {
    check(std::ranges::find(saved.state, name, &StateDict::value_type::first) != saved.state.end(),
          "{}: the average has {}, which the weights do not have", checkpoint.path.string(), name);
    averages.emplace(name, std::move(average));
  }
  // The average has a parameter that modules share under its first name alone.
  const auto parameters = module.named_parameters();
  for (const auto& [name, parameter] : parameters) {
    const auto first = std::ranges::find(parameters, parameter, &std::pair<std::string, Parameter>::second);
    if (const auto found = averages.find(first->first); found != averages.end()) averages.emplace(name, found->second);
  }
  for (auto& [name, value] : saved.state) {
    if (const auto found = averages.find(name); found != averages.end()) value = found->second;
  }
  return saved;
}

SavedState read_state(const std::filesystem::path& path, const Module& module) {
  if (const auto index = find_weights_index(path)) return read_indexed_state(*index);
  std::error_code told_below;
  if (!std::filesystem::is_directory(path, told_below)) return state_in(read_safetensors(path), path);
  std::optional<CheckpointContents> checkpoint = find_checkpoint(path);
  check(checkpoint.has_value(),
        "{}: there is no checkpoint in this folder, expected a safetensors file, a checkpoint, a folder of "
        "checkpoints, or a folder with model.safetensors.index.json",
        path.string());
  return checkpoint_state(std::move(*checkpoint), module);
}

// Returns the shape and type of each parameter and buffer, as text, by name.
std::map<std::string, std::string> expected_entries(const Module& module) {
  std::map<std::string, std::string> expected;
  auto all = module.named_parameters(), buffers = module.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (const auto& [name, p] : all) expected[name] = fmt::format("{} {}", p.shape().str(), lockstep::name(p.dtype()));
  return expected;
}

}  // namespace

StateDict as_tensors(const SafetensorsFile& file) {
  StateDict state;
  for (const TensorBytes& t : file.tensors) {
    Tensor tensor = Tensor::host(t.shape, t.dtype);
    if (!t.bytes.empty()) std::memcpy(tensor->view().data, t.bytes.data(), t.bytes.size());
    if (t.dtype == DType::boolean) {
      // A bool is 0 or 1. A file may have other bytes.
      auto* const byte = static_cast<std::uint8_t*>(tensor->view().data);
      std::transform(byte, byte + t.bytes.size(), byte, [](std::uint8_t b) { return b != 0 ? 1 : 0; });
    }
    state.emplace_back(t.name, std::move(tensor));
  }
  for (const ForeignTensor& t : file.foreign) {
    if (Tensor tensor = as_tensor(t)) state.emplace_back(t.name, std::move(tensor));
  }
  return state;
}

void save_weights(const std::filesystem::path& path, const Module& module) {
  const StateDict state = sound_state_dict(module, path.string());
  write_safetensors(path, as_bytes(state), {{"format", "pt"}});
}

namespace {

// Returns f(state) for what read() finds at `path`. Throws if that has an entry that no tensor can hold.
template <typename Read, typename F>
auto with_state(const std::filesystem::path& path, Module& module, const Read& read, const F& f) {
  ModuleTree::check_no_own_state(module, path.string());
  const SavedState saved = read();
  const auto expected = expected_entries(module);
  for (const ForeignTensor& t : saved.unusable) {
    const auto found = expected.find(t.name);
    check(found == expected.end(), "{}: {} is {}, expected {}", saved.file.string(), t.name, t.describe(),
          found == expected.end() ? "" : found->second);
    fail("{}: {} is not in the model", saved.file.string(), t.name);
  }
  try {
    return f(saved.state);
  } catch (const Error& error) {
    fail("{}: {}", saved.file.string(), error.what());
  }
}

}  // namespace

void load_weights(const std::filesystem::path& path, Module& module) {
  with_state(
      path, module, [&] { return read_state(path, module); },
      [&](const StateDict& state) { load_state_dict(module, state); });
}

std::vector<ParameterChange> weights_change(const std::filesystem::path& path, Module& module) {
  return with_state(
      path, module, [&] { return read_state(path, module); },
      [&](const StateDict& state) { return changes_to(module, state); });
}

std::vector<ParameterChange> weights_change(CheckpointContents checkpoint, Module& module) {
  const std::filesystem::path path = checkpoint.path;
  return with_state(
      path, module, [&] { return checkpoint_state(std::move(checkpoint), module); },
      [&](const StateDict& state) { return changes_to(module, state); });
}

UnmatchedEntries load_matching_weights(const std::filesystem::path& path, Module& module) {
  ModuleTree::check_no_own_state(module, path.string());
  const SavedState saved = read_state(path, module);
  try {
    UnmatchedEntries unmatched = load_matching_state(module, saved.state);
    const auto expected = expected_entries(module);
    for (const ForeignTensor& t : saved.unusable) {
      const auto found = expected.find(t.name);
      if (found == expected.end()) {
        unmatched.unexpected.push_back(t.name);
      } else {
        std::erase(unmatched.missing, t.name);
        unmatched.different.push_back(fmt::format("{} {}, expected {}", t.name, t.describe(), found->second));
      }
    }
    return unmatched;
  } catch (const Error& error) {
    fail("{}: {}", saved.file.string(), error.what());
  }
}

std::string weights_sha256_of(std::vector<TensorBytes> tensors) {
  std::ranges::sort(tensors, {}, &TensorBytes::name);
  Sha256 hash;
  for (const TensorBytes& t : tensors) {
    if (is_floating(t.dtype)) hash.update(t.bytes);
  }
  return hash.hex();
}

std::string weights_sha256(const Module& module) {
  StateDict state = state_dict(module);
  return weights_sha256_of(as_bytes(state));
}

}  // namespace lockstep
